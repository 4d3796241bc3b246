// Suggestions for mistyped names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ulmus {

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment) that turn
// `a` into `b`. Works on bytes; O(|a| |b|) time.
int64_t EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, if it is near enough to be a likely typo: at most a third of the
// longer text, and at least 2 edits are allowed. The first of equals wins. nullopt when nothing is
// near.
std::optional<std::string> NearestKey(std::string_view name,
                                      std::span<const std::string> candidates);

}  // namespace ulmus
