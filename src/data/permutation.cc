#include "data/permutation.h"

#include <unordered_map>

namespace ulmus::data {

std::vector<int64_t> PermutationTail(uint64_t seed, int64_t size, int64_t count) {
  count = std::min(count, size);
  Pcg64 rng(seed);
  // Only positions that no longer hold their own number.
  std::unordered_map<int64_t, int64_t> moved;
  const auto value_at = [&moved](int64_t i) {
    const auto it = moved.find(i);
    return it == moved.end() ? i : it->second;
  };
  std::vector<int64_t> tail(static_cast<size_t>(count));
  for (int64_t i = size - 1; i >= size - count; --i) {
    const auto partner = static_cast<int64_t>(rng.Interval(static_cast<uint64_t>(i)));
    const int64_t value = value_at(partner);
    moved[partner] = value_at(i);
    tail[static_cast<size_t>(i - (size - count))] = value;
  }
  return tail;
}

}  // namespace ulmus::data
