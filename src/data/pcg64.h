// NumPy's default bit generator and its seeding, bit for bit: PCG64 (XSL-RR 128/64) behind
// SeedSequence. Published data orders are shuffles drawn from it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ulmus::data {

// The first 8 words of numpy.random.SeedSequence(seed).generate_state(8).
// Source: NumPy, _bit_generator.pyx, SeedSequence (after O'Neill's randutils).
std::array<uint32_t, 8> SeedSequenceWords(uint64_t seed);

// numpy.random.PCG64(seed). A value: copies continue alike.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed);

  uint64_t Next64() {
    Step();
    const auto high = static_cast<uint64_t>(state_ >> 64);
    return std::rotr(high ^ static_cast<uint64_t>(state_), static_cast<int>(high >> 58));
  }

  // Low half of a fresh 64-bit word, then its high half.
  uint32_t Next32() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    const uint64_t word = Next64();
    has_half_ = true;
    half_ = static_cast<uint32_t>(word >> 32);
    return static_cast<uint32_t>(word);
  }

  // Uniform in [0, max]: masked draws, 32 bits wide while max fits, until one does not exceed max.
  // Source: NumPy, distributions.c, random_interval. 64-bit draws leave the buffered half alone.
  uint64_t Interval(uint64_t max) {
    if (max == 0) return 0;
    const uint64_t mask = ~uint64_t{0} >> std::countl_zero(max);
    uint64_t value = 0;
    if (max <= 0xffffffffu) {
      do value = Next32() & mask;
      while (value > max);
    } else {
      do value = Next64() & mask;
      while (value > max);
    }
    return value;
  }

 private:
  __extension__ using Word128 = unsigned __int128;
  static constexpr Word128 kMultiplier =
      (Word128{2549297995355413924u} << 64) | Word128{4865540595714422341u};

  void Step() { state_ = state_ * kMultiplier + increment_; }

  Word128 state_ = 0;
  Word128 increment_ = 0;
  uint32_t half_ = 0;
  bool has_half_ = false;
};

}  // namespace ulmus::data
