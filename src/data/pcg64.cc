#include "data/pcg64.h"

namespace ulmus::data {
namespace {

// The running hash with which words enter the pool.
class PoolHash {
 public:
  uint32_t operator()(uint32_t value) {
    value ^= constant_;
    constant_ *= 0x931e8875u;
    value *= constant_;
    return value ^ (value >> 16);
  }

 private:
  uint32_t constant_ = 0x43b0d7e5u;
};

uint32_t Mix(uint32_t x, uint32_t y) {
  const uint32_t mixed = x * 0xca01f9ddu - y * 0x4973f715u;
  return mixed ^ (mixed >> 16);
}

std::array<uint32_t, 4> MakePool(uint64_t seed) {
  // A missing entropy word counts as 0, so 64-bit seeds need no case of their own.
  const std::array<uint32_t, 4> entropy = {static_cast<uint32_t>(seed),
                                           static_cast<uint32_t>(seed >> 32), 0, 0};
  PoolHash hash;
  std::array<uint32_t, 4> pool{};
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = hash(entropy[i]);
  for (size_t source = 0; source < pool.size(); ++source) {
    for (size_t target = 0; target < pool.size(); ++target) {
      if (source != target) pool[target] = Mix(pool[target], hash(pool[source]));
    }
  }
  return pool;
}

}  // namespace

std::array<uint32_t, 8> SeedSequenceWords(uint64_t seed) {
  const std::array<uint32_t, 4> pool = MakePool(seed);
  uint32_t constant = 0x8b51f9ddu;
  std::array<uint32_t, 8> words{};
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t value = pool[i % pool.size()] ^ constant;
    constant *= 0x58f38dedu;
    value *= constant;
    words[i] = value ^ (value >> 16);
  }
  return words;
}

Pcg64::Pcg64(uint64_t seed) {
  const std::array<uint32_t, 8> words = SeedSequenceWords(seed);
  // Pairs of words, low one first, are 64-bit words; pairs of those, high one first, 128-bit words.
  const auto wide = [&words](size_t i) {
    return uint64_t{words[i]} | uint64_t{words[i + 1]} << 32;
  };
  const Word128 initial_state = (Word128{wide(0)} << 64) | wide(2);
  const Word128 sequence = (Word128{wide(4)} << 64) | wide(6);
  increment_ = (sequence << 1) | 1u;
  Step();
  state_ += initial_state;
  Step();
}

}  // namespace ulmus::data
