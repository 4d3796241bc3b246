// Grain's index shuffle: one element of a pseudo-random permutation, without the others.
#pragma once

#include <array>
#include <cstdint>

#include "base/status.h"

namespace ulmus::data {

// A permutation of 0 .. size-1 by a cycle-walking Feistel network of 4 rounds: O(1) memory and
// time. Equal to Grain's index_shuffle(i, max_index=size-1, seed, rounds=4) with one exception:
// where size-1 is a power of 4 from 65536 on, Grain returns one element twice and never the last;
// here the last element stays in place and all others are Grain's.
class IndexShuffle {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 48;  // Grain computes block widths in doubles

  // `size` in 1 .. kMaxSize (CHECK).
  IndexShuffle(int64_t size, uint32_t seed);
  int64_t operator()(int64_t index) const;

 private:
  uint64_t Encrypt(uint64_t value) const;

  uint64_t max_index_;
  int half_bits_;  // a block is two halves of this many bits
  uint64_t half_mask_;
  std::array<uint64_t, 4> keys_{};
};

}  // namespace ulmus::data
