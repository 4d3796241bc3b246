// Which tensors decay, and how fast each learns: by patterns over their names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ulmus::optim {

// Tensors whose names match one of the patterns. `*` stands for any text, `?` for one character.
struct ParamGroup {
  std::vector<std::string> patterns;
  double weight_decay = 0;
  double lr_factor = 1;  // times the schedule's rate
};

struct ParamRates {
  double weight_decay = 0, lr_factor = 1;
  int64_t group = -1;  // index of the group; -1: none, the defaults
};

// OLMo 3: the input embedding does not decay; everything else does, norms and head included.
// Source: OLMo-core's override on embeddings.weight, MaxText adamw_mask.
std::vector<ParamGroup> Olmo3ParamGroups();

bool MatchesPattern(std::string_view pattern, std::string_view name);

// One entry per name. kInvalidArgument if a pattern matches no name (lists the nearest) or a name
// is matched by two groups: a typo must not change what decays.
Result<std::vector<ParamRates>> AssignParamGroups(std::span<const std::string> names,
                                                  std::span<const ParamGroup> groups,
                                                  double default_weight_decay);

}  // namespace ulmus::optim
