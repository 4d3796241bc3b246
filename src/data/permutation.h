// NumPy's shuffle of 0 .. n-1 in memory. Permutations too large for that: data/permutation_file.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "data/pcg64.h"

namespace ulmus::data {

// Draws of a Fisher-Yates shuffle: for i = first, first - 1, ... each in 0 .. i. They do not depend
// on what is shuffled, so they are made ahead of use, and the memory they name can be fetched
// meanwhile.
inline constexpr int64_t kDrawsAhead = 64;

// Shuffles as Generator.shuffle does (NumPy, _generator.pyx, _shuffle_raw).
template <class Index>
void Shuffle(Pcg64& rng, std::span<Index> values) {
  std::array<uint64_t, kDrawsAhead> partners{};
  for (auto i = static_cast<int64_t>(values.size()) - 1; i > 0;) {
    const int64_t count = std::min(kDrawsAhead, i);
    for (int64_t k = 0; k < count; ++k) {
      const uint64_t partner = rng.Interval(static_cast<uint64_t>(i - k));
      partners[static_cast<size_t>(k)] = partner;
      __builtin_prefetch(&values[partner], 1);
    }
    for (int64_t k = 0; k < count; ++k)
      std::swap(values[static_cast<size_t>(i - k)], values[partners[static_cast<size_t>(k)]]);
    i -= count;
  }
}

// Generator(PCG64(seed)).permutation(size), and what shuffle() makes of arange(size).
template <class Index>
std::vector<Index> MakePermutation(uint64_t seed, int64_t size) {
  std::vector<Index> values(static_cast<size_t>(size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Index>(i);
  Pcg64 rng(seed);
  Shuffle<Index>(rng, values);
  return values;
}

// Entries size - count .. size - 1 of MakePermutation, from `count` draws: enough to tell whether a
// file of unknown origin can be this permutation. O(count) time and memory.
std::vector<int64_t> PermutationTail(uint64_t seed, int64_t size, int64_t count);

}  // namespace ulmus::data
