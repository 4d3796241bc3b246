#include "optim/param_groups.h"

#include <algorithm>
#include <cmath>

#include "base/edit_distance.h"

namespace ulmus::optim {
namespace {

Status NothingMatches(const std::string& pattern, std::span<const std::string> names) {
  const auto nearest = NearestKey(pattern, names);
  return InvalidArgumentError(
      "parameter group: pattern '{}' matches none of {} tensors{}; mend or remove it", pattern,
      names.size(), nearest ? fmt::format("; did you mean '{}'?", *nearest) : "");
}

Status ValidateGroup(const ParamGroup& group) {
  if (!std::isfinite(group.weight_decay) || group.weight_decay < 0)
    return InvalidArgumentError("parameter group: weight_decay = {}, expected 0 or more",
                                group.weight_decay);
  if (!std::isfinite(group.lr_factor) || group.lr_factor < 0)
    return InvalidArgumentError("parameter group: lr_factor = {}, expected 0 or more",
                                group.lr_factor);
  return {};
}

}  // namespace

std::vector<ParamGroup> Olmo3ParamGroups() {
  return {{.patterns = {"model.embed_tokens.weight"}, .weight_decay = 0}};
}

// On a mismatch the last star swallows one character more.
bool MatchesPattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<std::vector<ParamRates>> AssignParamGroups(std::span<const std::string> names,
                                                  std::span<const ParamGroup> groups,
                                                  double default_weight_decay) {
  std::vector<ParamRates> rates(names.size(), {.weight_decay = default_weight_decay});
  for (size_t g = 0; g < groups.size(); ++g) {
    TRY(ValidateGroup(groups[g]));
    for (const std::string& pattern : groups[g].patterns) {
      bool matched = false;
      for (size_t i = 0; i < names.size(); ++i) {
        if (!MatchesPattern(pattern, names[i])) continue;
        matched = true;
        const auto group = static_cast<int64_t>(g);
        if (rates[i].group >= 0 && rates[i].group != group) {
          return InvalidArgumentError(
              "parameter group: {} belongs to groups {} and {}; a tensor has one", names[i],
              rates[i].group, group);
        }
        rates[i] = {groups[g].weight_decay, groups[g].lr_factor, group};
      }
      if (!matched) return NothingMatches(pattern, names);
    }
  }
  return rates;
}

}  // namespace ulmus::optim
