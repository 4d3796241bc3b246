// Random numbers as pure functions of their position: no generator state, so any slice of a tensor
// can be filled on its own, by any host and in any order, with the same bits.
//
// Element i of stream (seed, step, purpose, name) is derived so:
//   key     = XXH3_64(little-endian u64 seed, then bytes of purpose, one zero byte, bytes of name)
//   counter = {low32(i / 4), high32(i / 4), low32(step), high32(step)}
//   word    = Philox4x32-10(counter, {low32(key), high32(key)})[i % 4]
//   p       = (word + 0.5) / 2^32, in double: symmetric about 1/2, never 0 or 1
// and uniform, normal and truncated normal values are functions of p alone (below). Only IEEE basic
// operations and square root are used, in double without fused multiply-add, so that all machines
// agree to the last bit.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace ulmus {

// Philox4x32 with 10 rounds. Source: Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as
// easy as 1, 2, 3".
using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;
PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key);

// One sequence of 2^64 values. `purpose` says what the numbers are for ("init", "dropout"); `name`
// is the tensor.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t step, std::string_view purpose, std::string_view name);

  // The four words of elements 4*block .. 4*block+3.
  PhiloxCounter Block(uint64_t block) const;
  // The 32 random bits of element `index`.
  uint32_t Word(uint64_t index) const { return Block(index / 4)[index % 4]; }

 private:
  PhiloxKey key_;
  uint64_t step_;
};

// Uniform in (0, 1): (upper 23 bits of the word + 0.5) / 2^23, exact in f32, so that neither 0 nor
// 1 occurs.
float UniformFromWord(uint32_t word);
float UniformAt(const RandomStream& stream, uint64_t index);

// mean + stddev * NormalQuantile(p), rounded to f32 once. |z| <= 6.3.
struct Normal {
  double mean = 0;
  double stddev = 1;
};
float NormalAt(const RandomStream& stream, uint64_t index, Normal normal = {});

// The normal conditioned on lying within `bound` standard deviations of the mean (bound > 0;
// PyTorch's trunc_normal_ with a = mean - bound * stddev, b = mean + bound * stddev): quantile of p
// mapped linearly into [CDF(-bound), CDF(bound)].
class TruncatedNormal {
 public:
  TruncatedNormal(Normal normal, double bound);  // searches CDF(-bound): make it once per tensor
  float FromWord(uint32_t word) const;

 private:
  Normal normal_;
  double bound_;
  double lower_tail_;  // CDF(-bound)
};
float TruncatedNormalAt(const RandomStream& stream, uint64_t index,
                        const TruncatedNormal& distribution);

// values[k] = element first_index + k of the stream: the same bits as the functions above, four
// words a block.
void FillUniform(const RandomStream& stream, uint64_t first_index, std::span<float> values);
void FillNormal(const RandomStream& stream, uint64_t first_index, Normal normal,
                std::span<float> values);
void FillTruncatedNormal(const RandomStream& stream, uint64_t first_index,
                         const TruncatedNormal& distribution, std::span<float> values);

// x with CDF(x) = p of the standard normal, 0 < p < 1 (CHECK), relative error about 1e-16.
// Source: Wichura 1988, algorithm AS 241, PPND16.
double NormalQuantile(double p);

}  // namespace ulmus
