#include "data/python_shuffle.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace ulmus::data {
namespace {

// Source: Matsumoto & Nishimura 1998, mt19937ar (init_by_array). std::mt19937 has no such seeding.
class MersenneTwister {
 public:
  explicit MersenneTwister(uint64_t seed) {
    const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                         static_cast<uint32_t>(seed >> 32)};
    InitByArray(key.data(), key[1] == 0 ? 1 : 2);
  }

  uint32_t Next() {
    if (at_ == kSize) Refill();
    uint32_t y = state_[at_++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
  }

 private:
  static constexpr size_t kSize = 624;
  static constexpr size_t kShift = 397;

  void Init(uint32_t seed) {
    state_[0] = seed;
    for (size_t i = 1; i < kSize; ++i)
      state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  }

  void InitByArray(const uint32_t* key, size_t length) {
    Init(19650218u);
    size_t i = 1;
    const auto advance = [&] {
      if (++i < kSize) return;
      state_[0] = state_[kSize - 1];
      i = 1;
    };
    for (size_t k = 0; k < kSize; ++k) {
      const size_t j = k % length;
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525u)) + key[j] +
                  static_cast<uint32_t>(j);
      advance();
    }
    for (size_t k = 0; k < kSize - 1; ++k) {
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941u)) -
                  static_cast<uint32_t>(i);
      advance();
    }
    state_[0] = 0x80000000u;
  }

  void Refill() {
    for (size_t i = 0; i < kSize; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
      state_[i] = state_[(i + kShift) % kSize] ^ (y >> 1) ^ ((y & 1) != 0 ? 0x9908b0dfu : 0);
    }
    at_ = 0;
  }

  std::array<uint32_t, kSize> state_ = {};
  size_t at_ = kSize;
};

}  // namespace

std::vector<int64_t> PythonShuffle(uint64_t seed, int64_t n) {
  CHECK(n >= 0 && n <= int64_t{1} << 31, "shuffle of {}", n);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  MersenneTwister random(seed);
  for (size_t i = order.size(); i-- > 1;) {
    const auto bits = static_cast<uint32_t>(std::bit_width(i + 1));
    size_t j;
    do {
      j = random.Next() >> (32 - bits);
    } while (j > i);
    std::swap(order[i], order[j]);
  }
  return order;
}

}  // namespace ulmus::data
