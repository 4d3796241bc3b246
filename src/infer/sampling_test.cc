#include "infer/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/random.h"

namespace ulmus::infer {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::map<int64_t, double> Frequencies(const std::vector<float>& logits, SamplingOptions options,
                                      int num_draws) {
  std::map<int64_t, double> frequencies;
  for (int i = 0; i < num_draws; ++i) {
    const Result<int64_t> id = SampleToken(logits, options, static_cast<uint64_t>(i), 0);
    EXPECT_TRUE(id.ok()) << id.status().ToString();
    frequencies[id.ok() ? *id : -1] += 1.0 / num_draws;
  }
  return frequencies;
}

// Six standard deviations of a frequency over `n` draws.
double SixSigma(double p, int n) { return 6 * std::sqrt(p * (1 - p) / n); }

std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

TEST(SampleToken, TemperatureZeroTakesTheLargestAndTheLowestIdOfEquals) {
  EXPECT_EQ(SampleToken(std::vector<float>{1, 3, 2, 3}, {.temperature = 0}, 0, 0).value(), 1);
  EXPECT_EQ(SampleToken(std::vector<float>{-1, -1, -1}, {.temperature = 0}, 0, 0).value(), 0);
  EXPECT_EQ(SampleToken(std::vector<float>{-kInf, -5}, {.temperature = 0}, 0, 0).value(), 1);
}

TEST(SampleToken, TopKOneIsGreedyAtAnyTemperature) {
  for (uint64_t position = 0; position < 50; ++position) {
    const SamplingOptions options{.temperature = 100, .top_k = 1, .seed = position};
    EXPECT_EQ(SampleToken(std::vector<float>{1, 3, 2, 3}, options, 0, position).value(), 1);
  }
}

TEST(SampleToken, FrequenciesAreTheProbabilities) {
  const std::vector<double> p = {0.5, 0.05, 0.25, 0.2};
  constexpr int kDraws = 20000;
  const auto frequencies = Frequencies(LogitsOf(p), {.temperature = 1}, kDraws);
  for (size_t id = 0; id < p.size(); ++id) {
    EXPECT_NEAR(frequencies.at(static_cast<int64_t>(id)), p[id], SixSigma(p[id], kDraws)) << id;
  }
}

TEST(SampleToken, TemperatureDividesTheLogits) {
  // At temperature 0.5 probabilities are squared and renormalised.
  constexpr int kDraws = 20000;
  const auto frequencies = Frequencies(LogitsOf({0.6, 0.3, 0.1}), {.temperature = 0.5}, kDraws);
  EXPECT_NEAR(frequencies.at(0), 0.36 / 0.46, SixSigma(0.36 / 0.46, kDraws));
  EXPECT_NEAR(frequencies.at(1), 0.09 / 0.46, SixSigma(0.09 / 0.46, kDraws));
}

TEST(SampleToken, TopKKeepsExactlyKAndOfEqualsTheLowerIds) {
  constexpr int kDraws = 4000;
  const auto frequencies = Frequencies({0, 1, 1, 1, 0}, {.temperature = 1, .top_k = 2}, kDraws);
  ASSERT_EQ(frequencies.size(), 2u);
  EXPECT_NEAR(frequencies.at(1), 0.5, SixSigma(0.5, kDraws));
  EXPECT_NEAR(frequencies.at(2), 0.5, SixSigma(0.5, kDraws));
}

TEST(SampleToken, TopKBeyondTheVocabularyKeepsAll) {
  const std::vector<float> logits = LogitsOf({0.5, 0.05, 0.25, 0.2});
  for (uint64_t sequence = 0; sequence < 200; ++sequence) {
    EXPECT_EQ(SampleToken(logits, {.temperature = 1, .top_k = 99}, sequence, 3).value(),
              SampleToken(logits, {.temperature = 1}, sequence, 3).value());
  }
}

TEST(SampleToken, TopPKeepsTheShortestRunThatReachesP) {
  const std::vector<float> logits = LogitsOf({0.1, 0.5, 0.25, 0.15});
  const struct {
    double top_p;
    size_t kept;
  } rows[] = {{1e-9, 1}, {0.49, 1}, {0.51, 2}, {0.74, 2}, {0.76, 3}, {0.89, 3}, {0.91, 4}, {1, 4}};
  for (const auto& row : rows) {
    const auto frequencies = Frequencies(logits, {.temperature = 1, .top_p = row.top_p}, 2000);
    EXPECT_EQ(frequencies.size(), row.kept) << "top_p " << row.top_p;
    EXPECT_TRUE(frequencies.contains(1)) << "top_p " << row.top_p;
  }
}

TEST(SampleToken, TopPCountsWithinTheTopK) {
  // Of 0.4, 0.3, 0.2, 0.1 the top two are 4/7 and 3/7: 0.55 needs one of them, 0.6 both.
  const std::vector<float> logits = LogitsOf({0.4, 0.3, 0.2, 0.1});
  EXPECT_EQ(Frequencies(logits, {.temperature = 1, .top_k = 2, .top_p = 0.55}, 500).size(), 1u);
  EXPECT_EQ(Frequencies(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6}, 500).size(), 2u);
}

TEST(SampleToken, KeptTokensShareWhatTruncationLeft) {
  constexpr int kDraws = 20000;
  const auto frequencies =
      Frequencies(LogitsOf({0.5, 0.25, 0.15, 0.1}), {.temperature = 1, .top_p = 0.7}, kDraws);
  EXPECT_NEAR(frequencies.at(0), 2.0 / 3, SixSigma(2.0 / 3, kDraws));
}

TEST(SampleToken, IsAPureFunctionOfSeedSequenceAndPosition) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = std::sin(static_cast<float>(i));
  const auto draw = [&](uint64_t seed, uint64_t sequence, uint64_t position) {
    return SampleToken(logits, {.temperature = 1, .seed = seed}, sequence, position).value();
  };
  EXPECT_EQ(draw(1, 2, 3), draw(1, 2, 3));
  // Of 1000 near-equal tokens, eight draws that agree would be one stream used twice.
  int changed_seed = 0, changed_sequence = 0, changed_position = 0;
  for (uint64_t i = 0; i < 8; ++i) {
    changed_seed += draw(i, 2, 3) != draw(i + 1, 2, 3);
    changed_sequence += draw(1, i, 3) != draw(1, i + 1, 3);
    changed_position += draw(1, 2, i) != draw(1, 2, i + 1);
  }
  EXPECT_GE(changed_seed, 6);
  EXPECT_GE(changed_sequence, 6);
  EXPECT_GE(changed_position, 6);
}

TEST(SampleToken, DrawsAsDocumented) {
  const std::vector<float> logits = LogitsOf({0.1, 0.2, 0.3, 0.4});
  const double sums[] = {0.1, 0.3, 0.6, 1.0};
  for (uint64_t sequence = 0; sequence < 100; ++sequence) {
    const PhiloxCounter words = RandomStream(7, 5, "sample", "").Block(sequence);
    const double u =
        (static_cast<double>((uint64_t{words[0]} << 32 | words[1]) >> 11) + 0.5) / 0x1p53;
    int64_t expected = 0;
    while (sums[expected] < u) ++expected;
    EXPECT_EQ(SampleToken(logits, {.temperature = 1, .seed = 7}, sequence, 5).value(), expected);
  }
}

TEST(SampleToken, HugeLogitsAndTinyTemperaturesStayFinite) {
  const SamplingOptions cold{.temperature = 1e-300};
  EXPECT_EQ(SampleToken(std::vector<float>{3e38f, -3e38f, 2.9e38f}, cold, 0, 0).value(), 0);
  const auto hot = Frequencies({3e38f, -3e38f}, {.temperature = 1e300}, 2000);
  EXPECT_EQ(hot.size(), 2u);
}

TEST(SampleToken, NeverTakesMinusInfinity) {
  const auto frequencies = Frequencies({-kInf, 0, -kInf, 0}, {.temperature = 1e6}, 500);
  EXPECT_EQ(frequencies.size(), 2u);
  EXPECT_FALSE(frequencies.contains(0));
}

TEST(SampleToken, RefusesLogitsThatNameNoToken) {
  const struct {
    std::vector<float> logits;
    const char* message;
  } rows[] = {{{0, kNan, 1}, "token 1 is nan"},
              {{0, 1, kInf}, "token 2 is inf"},
              {{-kInf, -kInf}, "none of the 2 logits is finite"},
              {{}, "none of the 0 logits is finite"}};
  for (const auto& row : rows) {
    for (double temperature : {0.0, 1.0}) {
      const auto id = SampleToken(row.logits, {.temperature = temperature}, 0, 0);
      ASSERT_FALSE(id.ok()) << row.message;
      EXPECT_EQ(id.error().code(), StatusCode::kFailedPrecondition);
      EXPECT_THAT(id.error().message(), HasSubstr(row.message));
    }
  }
}

TEST(ValidateSampling, NamesTheOptionThatIsOutOfRange) {
  EXPECT_TRUE(ValidateSampling({}).ok());
  EXPECT_TRUE(ValidateSampling({.temperature = 2, .top_k = 40, .top_p = 0.5, .seed = 1}).ok());
  const struct {
    SamplingOptions options;
    const char* message;
  } rows[] = {{{.temperature = -1}, "temperature is -1"},
              {{.temperature = std::nan("")}, "temperature is nan"},
              {{.temperature = std::numeric_limits<double>::infinity()}, "temperature is inf"},
              {{.top_k = -1}, "top_k is -1"},
              {{.top_p = 0}, "top_p is 0"},
              {{.top_p = 1.5}, "top_p is 1.5"},
              {{.top_p = std::nan("")}, "top_p is nan"}};
  for (const auto& row : rows) {
    const Status status = ValidateSampling(row.options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(row.message));
  }
}

}  // namespace
}  // namespace ulmus::infer
