#include "base/edit_distance.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace ulmus {
namespace {

// Longest name that is compared: a recipe may hold a megabyte of key.
constexpr size_t kMaxLength = 256;

}  // namespace

int64_t EditDistance(std::string_view a, std::string_view b) {
  // Three rows of the table: swaps look two rows back.
  std::vector<int64_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t substituted = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substituted});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> NearestKey(std::string_view name,
                                      std::span<const std::string> candidates) {
  if (name.size() > kMaxLength) return std::nullopt;
  const std::string* nearest = nullptr;
  int64_t nearest_distance = 0;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size());
    const int64_t allowed = std::max<int64_t>(2, static_cast<int64_t>(longer / 3));
    const int64_t lengths_apart =
        static_cast<int64_t>(longer - std::min(name.size(), candidate.size()));
    if (lengths_apart > allowed) continue;
    const int64_t distance = EditDistance(name, candidate);
    // A short name with every letter changed is another name, not a typo.
    if (distance > allowed || distance >= static_cast<int64_t>(longer)) continue;
    if (nearest == nullptr || distance < nearest_distance) {
      nearest = &candidate;
      nearest_distance = distance;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  return *nearest;
}

}  // namespace ulmus
