#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/hash.h"

namespace ulmus {
namespace {

TEST(Philox, MatchesThePublishedVectors) {  // Random123, kat_vectors, philox4x32 with 10 rounds
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(Philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, FollowsTheDocumentedDerivation) {
  const uint64_t key = Xxh3(std::string("\x07\0\0\0\0\0\0\0init\0w", 14));
  const uint64_t index = (uint64_t{5} << 34) + 6;  // block 5 * 2^32 + 1, lane 2
  const PhiloxCounter words =
      Philox4x32({1, 5, 3, 1}, {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  EXPECT_EQ(RandomStream(7, (uint64_t{1} << 32) + 3, "init", "w").Word(index), words[2]);
}

TEST(RandomStream, EveryPartOfTheAddressMatters) {
  const uint32_t word = RandomStream(1, 2, "init", "w").Word(0);
  EXPECT_NE(RandomStream(2, 2, "init", "w").Word(0), word);
  EXPECT_NE(RandomStream(1, 3, "init", "w").Word(0), word);
  EXPECT_NE(RandomStream(1, 2, "noise", "w").Word(0), word);
  EXPECT_NE(RandomStream(1, 2, "init", "v").Word(0), word);
  EXPECT_NE(RandomStream(1, 2, "initw", "").Word(0), word);
  EXPECT_NE(RandomStream(1, 2, "init", "w").Word(1), word);
}

// Every distribution: filling the whole equals filling arbitrary blocks and asking element by
// element.
TEST(RandomStream, SameForAnySharding) {
  const RandomStream stream(6198, 0, "init", "model.layers.3.mlp.up_proj.weight");
  const TruncatedNormal truncated({.mean = 0, .stddev = 0.02}, 3);
  struct Case {
    const char* name;
    std::function<void(uint64_t, std::span<float>)> fill;
    std::function<float(uint64_t)> at;
  };
  const Case cases[] = {
      {"uniform", [&](uint64_t first, std::span<float> v) { FillUniform(stream, first, v); },
       [&](uint64_t i) { return UniformAt(stream, i); }},
      {"normal",
       [&](uint64_t first, std::span<float> v) { FillNormal(stream, first, {1, 0.5}, v); },
       [&](uint64_t i) { return NormalAt(stream, i, {1, 0.5}); }},
      {"truncated",
       [&](uint64_t first, std::span<float> v) {
         FillTruncatedNormal(stream, first, truncated, v);
       },
       [&](uint64_t i) { return TruncatedNormalAt(stream, i, truncated); }},
  };
  for (const Case& test : cases) {
    std::vector<float> whole(1000), blocks(1000);
    test.fill(0, whole);
    for (size_t begin = 0, size = 1; begin < blocks.size();
         begin += size, size = (size * 7) % 64 + 1) {
      size = std::min(size, blocks.size() - begin);
      test.fill(begin, std::span(blocks).subspan(begin, size));
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(blocks[i], whole[i]) << test.name << " element " << i;
      ASSERT_EQ(test.at(i), whole[i]) << test.name << " element " << i;
    }
  }
}

TEST(NormalQuantile, InvertsTheErrorFunction) {
  EXPECT_EQ(NormalQuantile(0.5), 0);
  EXPECT_DOUBLE_EQ(NormalQuantile(0.975), 1.9599639845400542);
  for (double p : {1e-300, 1e-20, 1e-10, 1e-5, 0.01, 0.0749, 0.0751, 0.3, 0.6, 0.93, 0.9999}) {
    const double back = 0.5 * std::erfc(-NormalQuantile(p) / std::sqrt(2.0));
    EXPECT_NEAR(back / p, 1, 1e-12)
        << p;  // relative error of x is multiplied by up to x^2 = 1400 in the far tail
  }
}

TEST(NormalQuantile, IsOddAndFiniteAtTheEnds) {
  const double smallest = 0x1p-33;
  EXPECT_DOUBLE_EQ(NormalQuantile(smallest), -NormalQuantile(1 - smallest));
  EXPECT_LT(NormalQuantile(1 - smallest), 6.4);
  EXPECT_GT(NormalQuantile(1 - smallest), 6.2);
}

struct Moments {
  double mean = 0, variance = 0, kurtosis = 0, min = 0, max = 0;
};

Moments MomentsOf(std::span<const float> values) {
  Moments m{.min = values[0], .max = values[0]};
  const auto n = static_cast<double>(values.size());
  for (double v : values) m.mean += v / n;
  for (double v : values) {
    const double d = v - m.mean;
    m.variance += d * d / n;
    m.kurtosis += d * d * d * d / n;
    m.min = std::min(m.min, v);
    m.max = std::max(m.max, v);
  }
  m.kurtosis /= m.variance * m.variance;
  return m;
}

// 200,000 draws: tolerances are about 4 standard errors.
TEST(Distributions, HaveTheirMoments) {
  const RandomStream stream(1, 0, "test", "moments");
  std::vector<float> values(200000);
  FillUniform(stream, 0, values);
  Moments m = MomentsOf(values);
  EXPECT_NEAR(m.mean, 0.5, 0.0026);
  EXPECT_NEAR(m.variance, 1.0 / 12, 0.0007);
  EXPECT_GT(m.min, 0);
  EXPECT_LT(m.max, 1);

  FillNormal(stream, 0, {.mean = 3, .stddev = 2}, values);
  m = MomentsOf(values);
  EXPECT_NEAR(m.mean, 3, 0.018);
  EXPECT_NEAR(m.variance, 4, 0.051);
  EXPECT_NEAR(m.kurtosis, 3, 0.044);

  FillTruncatedNormal(stream, 0, TruncatedNormal({.mean = 0, .stddev = 1}, 2), values);
  m = MomentsOf(values);
  EXPECT_NEAR(m.mean, 0, 0.008);
  EXPECT_NEAR(m.variance, 0.77374, 0.008);  // 1 - 2 b phi(b) / (CDF(b) - CDF(-b)) at b = 2
  EXPECT_GE(m.min, -2);
  EXPECT_LE(m.max, 2);
}

TEST(Distributions, UniformNeverReachesItsEnds) {
  EXPECT_EQ(UniformFromWord(0), 0x1p-24f);
  EXPECT_EQ(UniformFromWord(0xffffffff), 1 - 0x1p-24f);
}

// Initial weights depend on these bits: a change here makes old runs irreproducible.
TEST(Distributions, BitsAreFixed) {
  const RandomStream stream(6198, 0, "init", "model.embed_tokens.weight");
  std::vector<float> values(4096);
  FillTruncatedNormal(stream, 0, TruncatedNormal({.mean = 0, .stddev = 0.02}, 3), values);
  EXPECT_EQ(Xxh3(std::as_bytes(std::span<const float>(values))), 4171902105566561568u);
}

}  // namespace
}  // namespace ulmus
