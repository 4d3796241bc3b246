// The shuffle of Python's `random` module.
#pragma once

#include <cstdint>
#include <vector>

namespace ulmus::data {

// 0 .. n-1 after random.Random(seed).shuffle: MT19937 seeded by the array method with the 32-bit
// words of the seed, then a swap of i = n-1 .. 1 with a draw of bit_length(i+1) bits, refused above
// i.
std::vector<int64_t> PythonShuffle(uint64_t seed, int64_t n);

}  // namespace ulmus::data
