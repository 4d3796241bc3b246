#include "base/random.h"

#include <bit>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/hash.h"

namespace ulmus {
namespace {

PhiloxCounter PhiloxRound(const PhiloxCounter& c, const PhiloxKey& key) {
  const uint64_t product0 = uint64_t{0xd2511f53} * c[0];
  const uint64_t product1 = uint64_t{0xcd9e8d57} * c[2];
  return {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(product0)};
}

// sum of coefficients[k] * x^k
template <size_t N>
double Polynomial(const std::array<double, N>& coefficients, double x) {
  double sum = coefficients[N - 1];
  for (size_t k = N - 1; k-- > 0;) sum = sum * x + coefficients[k];
  return sum;
}

// Natural logarithm from basic operations: the C library's may differ by a bit between versions and
// processors. x positive and normal. log(m 2^e) = e log 2 + 2 atanh(s), s = (m-1)/(m+1), |s| <
// 0.172.
double PortableLog(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  auto mantissa = std::bit_cast<double>((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  double series = 0;
  for (int k = 12; k >= 0; --k) series = series * (s * s) + 1.0 / (2 * k + 1);
  return exponent * 0.6931471805599453 + 2 * s * series;
}

double ProbabilityOf(uint32_t word) { return (word + 0.5) * 0x1p-32; }
float NormalOf(uint32_t word, const Normal& normal) {
  return static_cast<float>(normal.mean + normal.stddev * NormalQuantile(ProbabilityOf(word)));
}

template <class FromWord>
void Fill(const RandomStream& stream, uint64_t first_index, std::span<float> values,
          FromWord from_word) {
  size_t k = 0;
  while (k < values.size()) {
    const uint64_t index = first_index + k;
    const PhiloxCounter words = stream.Block(index / 4);
    for (size_t lane = index % 4; lane < 4 && k < values.size(); ++lane)
      values[k++] = from_word(words[lane]);
  }
}

std::string KeyText(uint64_t seed, std::string_view purpose, std::string_view name) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text += static_cast<char>(seed >> (8 * byte) & 255);
  text.append(purpose);
  text += '\0';
  text.append(name);
  return text;
}

// p with NormalQuantile(p) = x for x < 0, by halving: slow, but of the same bits everywhere.
double LowerTail(double x) {
  double low = 0, high = 0.5;
  for (int step = 0; step < 64; ++step) {
    const double middle = 0.5 * (low + high);
    (NormalQuantile(middle) < x ? low : high) = middle;
  }
  return high;
}

}  // namespace

PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    counter = PhiloxRound(counter, key);
    key[0] += 0x9e3779b9;  // golden ratio
    key[1] += 0xbb67ae85;  // sqrt(3) - 1
  }
  return counter;
}

RandomStream::RandomStream(uint64_t seed, uint64_t step, std::string_view purpose,
                           std::string_view name)
    : step_(step) {
  const uint64_t key = Xxh3(KeyText(seed, purpose, name));
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

PhiloxCounter RandomStream::Block(uint64_t block) const {
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(step_), static_cast<uint32_t>(step_ >> 32)},
                    key_);
}

double NormalQuantile(double p) {
  CHECK(p > 0 && p < 1, "quantile of probability {}", p);
  constexpr std::array<double, 8> kA = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                        1.9715909503065514427e3, 1.3731693765509461125e4,
                                        4.5921953931549871457e4, 6.7265770927008700853e4,
                                        3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr std::array<double, 8> kB = {1.0,
                                        4.2313330701600911252e1,
                                        6.8718700749205790830e2,
                                        5.3941960214247511077e3,
                                        2.1213794301586595867e4,
                                        3.9307895800092710610e4,
                                        2.8729085735721942674e4,
                                        5.2264952788528545610e3};
  constexpr std::array<double, 8> kC = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                        5.76949722146069140550e0,  3.64784832476320460504e0,
                                        1.27045825245236838258e0,  2.41780725177450611770e-1,
                                        2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr std::array<double, 8> kD = {1.0,
                                        2.05319162663775882187e0,
                                        1.67638483018380384940e0,
                                        6.89767334985100004550e-1,
                                        1.48103976427480074590e-1,
                                        1.51986665636164571966e-2,
                                        5.47593808499534494600e-4,
                                        1.05075007164441684324e-9};
  constexpr std::array<double, 8> kE = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                        1.78482653991729133580e0,  2.96560571828504891230e-1,
                                        2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                        2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr std::array<double, 8> kF = {1.0,
                                        5.99832206555887937690e-1,
                                        1.36929880922735805310e-1,
                                        1.48753612908506148525e-2,
                                        7.86869131145613259100e-4,
                                        1.84631831751005468180e-5,
                                        1.42151175831644588870e-7,
                                        2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kA, r) / Polynomial(kB, r);
  }
  const double r = std::sqrt(-PortableLog(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? Polynomial(kC, r - 1.6) / Polynomial(kD, r - 1.6)
                          : Polynomial(kE, r - 5) / Polynomial(kF, r - 5);
  return q < 0 ? -x : x;
}

TruncatedNormal::TruncatedNormal(Normal normal, double bound) : normal_(normal), bound_(bound) {
  CHECK(bound > 0, "truncation at {} standard deviations", bound);
  lower_tail_ = LowerTail(-bound);
}

float TruncatedNormal::FromWord(uint32_t word) const {
  const double p = lower_tail_ + (1 - 2 * lower_tail_) * ProbabilityOf(word);
  const double z = std::fmin(std::fmax(NormalQuantile(p), -bound_), bound_);
  return static_cast<float>(normal_.mean + normal_.stddev * z);
}

float UniformFromWord(uint32_t word) { return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f; }

float UniformAt(const RandomStream& stream, uint64_t index) {
  return UniformFromWord(stream.Word(index));
}
float NormalAt(const RandomStream& stream, uint64_t index, Normal normal) {
  return NormalOf(stream.Word(index), normal);
}
float TruncatedNormalAt(const RandomStream& stream, uint64_t index,
                        const TruncatedNormal& distribution) {
  return distribution.FromWord(stream.Word(index));
}

void FillUniform(const RandomStream& stream, uint64_t first_index, std::span<float> values) {
  Fill(stream, first_index, values, UniformFromWord);
}

void FillNormal(const RandomStream& stream, uint64_t first_index, Normal normal,
                std::span<float> values) {
  Fill(stream, first_index, values, [normal](uint32_t word) { return NormalOf(word, normal); });
}

void FillTruncatedNormal(const RandomStream& stream, uint64_t first_index,
                         const TruncatedNormal& distribution, std::span<float> values) {
  Fill(stream, first_index, values,
       [&distribution](uint32_t word) { return distribution.FromWord(word); });
}

}  // namespace ulmus
