#include "data/index_shuffle.h"

#include <algorithm>
#include <bit>
#include <random>

#include "base/check.h"

namespace ulmus::data {

IndexShuffle::IndexShuffle(int64_t size, uint32_t seed)
    : max_index_(static_cast<uint64_t>(size - 1)) {
  CHECK(size >= 1 && size <= kMaxSize, "index shuffle of {} elements", size);
  // ceil(log2(max_index)), rounded up to even, at least 16 bits.
  const int bits = max_index_ <= 1 ? 0 : static_cast<int>(std::bit_width(max_index_ - 1));
  half_bits_ = std::max(16, bits + bits % 2) / 2;
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
  // The standard defines seed_seq to the bit, so it is the same everywhere.
  std::array<uint32_t, 4> words{};
  std::seed_seq{seed}.generate(words.begin(), words.end());
  for (size_t i = 0; i < keys_.size(); ++i) keys_[i] = words[i] & half_mask_;
}

uint64_t IndexShuffle::Encrypt(uint64_t value) const {
  const auto rotate = [this](uint64_t x, int count) {
    return ((x << count) | (x >> (half_bits_ - count))) & half_mask_;
  };
  const auto round = [&rotate](uint64_t x) { return (rotate(x, 1) & rotate(x, 8)) ^ rotate(x, 2); };
  uint64_t left = value >> half_bits_;
  uint64_t right = value & half_mask_;
  for (size_t i = 0; i < keys_.size(); i += 2) {
    left ^= round(right) ^ keys_[i];
    right ^= round(left) ^ keys_[i + 1];
  }
  return left << half_bits_ | right;
}

int64_t IndexShuffle::operator()(int64_t index) const {
  auto value = static_cast<uint64_t>(index);
  CHECK(value <= max_index_, "element {} of a shuffle of {}", index, max_index_ + 1);
  // The one element outside the block (see the header).
  if (value >> (2 * half_bits_) != 0) return index;
  do value = Encrypt(value);
  while (value > max_index_);
  return static_cast<int64_t>(value);
}

}  // namespace ulmus::data
