#include "infer/parity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ulmus::infer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> LogitsOf(const std::vector<double>& probabilities, double shift = 0) {
  std::vector<float> logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + shift));
  return logits;
}

TEST(KlDivergence, OfTwoCoinsWithADifferentShift) {
  const double expected = 0.75 * std::log(0.75 / 0.5) + 0.25 * std::log(0.25 / 0.5);
  EXPECT_NEAR(KlDivergence(LogitsOf({0.75, 0.25}), LogitsOf({0.5, 0.5}, 20)), expected, 1e-6);
}

TEST(KlDivergence, IsDirected) {
  const auto p = LogitsOf({0.9, 0.1}), q = LogitsOf({0.5, 0.5});
  EXPECT_NEAR(KlDivergence(p, q), 0.9 * std::log(1.8) + 0.1 * std::log(0.2), 1e-6);
  EXPECT_NEAR(KlDivergence(q, p), 0.5 * std::log(0.5 / 0.9) + 0.5 * std::log(5.0), 1e-6);
}

// The plain formula loses everything below 1e-16 to cancellation; a limit of 1e-6 needs less, but
// a figure that is noise misleads.
TEST(KlDivergence, KeepsItsDigitsForNearlyEqualLogits) {
  std::vector<float> p(1000), q(1000);
  for (size_t v = 0; v < p.size(); ++v) {
    p[v] = std::sin(static_cast<float>(v));
    q[v] = p[v] + (v % 2 == 0 ? 0x1p-20f : 0.0f);
  }
  // To second order KL is half the variance of the difference under p, here a coin of two values.
  double even = 0, total = 0;
  for (size_t v = 0; v < p.size(); ++v) {
    total += std::exp(static_cast<double>(p[v]));
    if (v % 2 == 0) even += std::exp(static_cast<double>(p[v]));
  }
  double variance = 0;
  for (size_t v = 0; v < p.size(); ++v) {
    const double d = static_cast<double>(q[v]) - static_cast<double>(p[v]);
    variance += std::exp(static_cast<double>(p[v])) / total * d * d;
  }
  double mean = 0;
  for (size_t v = 0; v < p.size(); ++v) {
    mean += std::exp(static_cast<double>(p[v])) / total *
            (static_cast<double>(q[v]) - static_cast<double>(p[v]));
  }
  variance -= mean * mean;
  EXPECT_NEAR(KlDivergence(p, q) / (variance / 2), 1, 1e-3);
}

TEST(KlDivergence, IsZeroForEqualLogitsHoweverLarge) {
  const std::vector<float> logits = {3e38f, -3e38f, 1, 3e38f};
  EXPECT_EQ(KlDivergence(logits, logits), 0);
}

TEST(ParityAccumulator, MeansAndMaximaOverPositions) {
  ParityAccumulator accumulator;
  const auto p = LogitsOf({0.75, 0.25});
  ASSERT_TRUE(accumulator.Add({0, 0}, p, p).ok());
  ASSERT_TRUE(accumulator.Add({0, 1}, p, LogitsOf({0.5, 0.5})).ok());
  ASSERT_TRUE(accumulator.Add({1, 0}, p, LogitsOf({0.25, 0.75})).ok());
  ASSERT_TRUE(accumulator.Add({1, 1}, p, LogitsOf({0.7, 0.3})).ok());
  const ParityStats stats = accumulator.Stats();
  const double far = 0.75 * std::log(3.0) - 0.25 * std::log(3.0);
  const double near = 0.75 * std::log(0.75 / 0.7) + 0.25 * std::log(0.25 / 0.3);
  const double coin = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  EXPECT_EQ(stats.positions, 4);
  EXPECT_NEAR(stats.kl_max, far, 1e-6);
  EXPECT_EQ(stats.kl_max_at, (TokenPlace{1, 0}));
  EXPECT_NEAR(stats.kl_mean, (far + near + coin) / 4, 1e-6);
  EXPECT_NEAR(stats.max_abs_diff, std::log(3.0), 1e-6);
  EXPECT_EQ(stats.max_abs_diff_at, (TokenPlace{1, 0}));
  EXPECT_EQ(stats.top1_agreement, 0.75);
  EXPECT_EQ(stats.first_disagreement, (TokenPlace{1, 0}));
  EXPECT_NEAR(stats.first_disagreement_margin, std::log(3.0), 1e-6);
}

TEST(ParityAccumulator, EqualLogitsAgreeOnTheLowestIdOfTies) {
  ParityAccumulator accumulator;
  ASSERT_TRUE(
      accumulator.Add({0, 0}, std::vector<float>{1, 5, 5}, std::vector<float>{1, 5, 5}).ok());
  EXPECT_EQ(accumulator.Stats().top1_agreement, 1);
  EXPECT_EQ(accumulator.Stats().kl_max, 0);
}

TEST(ParityAccumulator, CountsOurNonfinitePositionsAndRefusesTheReferences) {
  ParityAccumulator accumulator;
  const std::vector<float> fine = {1, 2};
  ASSERT_TRUE(accumulator.Add({0, 0}, fine, fine).ok());
  ASSERT_TRUE(accumulator.Add({0, 1}, fine, std::vector<float>{1, kNan}).ok());
  ASSERT_TRUE(accumulator.Add({0, 2}, fine, std::vector<float>{kInf, 1}).ok());
  EXPECT_EQ(accumulator.Stats().nonfinite, 2);
  EXPECT_EQ(accumulator.Stats().first_nonfinite, (TokenPlace{0, 1}));
  EXPECT_EQ(accumulator.Stats().kl_mean, 0);
  EXPECT_NEAR(accumulator.Stats().top1_agreement, 1.0 / 3, 1e-12);
  const Status nan = accumulator.Add({3, 4}, std::vector<float>{1, kNan}, fine);
  EXPECT_EQ(nan.code(), StatusCode::kDataLoss);
  EXPECT_THAT(nan.message(), HasSubstr("sequence 3, position 4"));
  EXPECT_EQ(accumulator.Add({0, 0}, fine, std::vector<float>{1}).code(),
            StatusCode::kInvalidArgument);
}

TEST(ParityAccumulator, WithoutAFinitePositionThereIsNoFigure) {
  ParityAccumulator accumulator;
  const std::vector<float> fine = {1, 2}, nan = {kNan, kNan};
  ASSERT_TRUE(accumulator.Add({1, 5}, fine, nan).ok());
  ASSERT_TRUE(accumulator.Add({1, 6}, fine, nan).ok());
  const ParityStats stats = accumulator.Stats();
  EXPECT_TRUE(std::isnan(stats.kl_mean) && std::isnan(stats.kl_max));
  EXPECT_TRUE(std::isnan(stats.max_abs_diff));
  EXPECT_EQ(stats.top1_agreement, 0);
  EXPECT_EQ(stats.WorstPlace(), (TokenPlace{1, 5}));
  EXPECT_THAT(
      BrokenLimits(stats, DefaultParityLimits(DType::kF32)),
      ElementsAre(HasSubstr("not finite at 2 of 2 positions, first at sequence 1, position 5")));
}

TEST(BrokenLimits, HoldExactlyAtTheLimit) {
  ParityStats stats;
  stats.positions = 200;
  stats.kl_mean = 1e-3, stats.kl_max = 1e-2, stats.max_abs_diff = 0.5, stats.top1_agreement = 0.995;
  const ParityLimits at{
      .kl_mean = 1e-3, .kl_max = 1e-2, .max_abs_diff = 0.5, .top1_agreement = 0.995};
  EXPECT_THAT(BrokenLimits(stats, at), IsEmpty());
  const ParityLimits below{
      .kl_mean = 9e-4, .kl_max = 9e-3, .max_abs_diff = 0.4, .top1_agreement = 0.996};
  EXPECT_THAT(BrokenLimits(stats, below),
              ElementsAre(HasSubstr("mean KL is 0.001, at most 0.0009"),
                          HasSubstr("KL is 0.01 at sequence 0, position 0, at most 0.009"),
                          HasSubstr("99.5 % of the positions, expected 99.6 %"),
                          HasSubstr("differs by 0.5 at sequence 0, position 0, at most 0.4")));
  EXPECT_THAT(BrokenLimits(stats, {}), IsEmpty());
}

TEST(BrokenLimits, NothingComparedOrNotFiniteNeverHolds) {
  EXPECT_THAT(BrokenLimits({}, {}), ElementsAre(HasSubstr("no position")));
  ParityStats stats;
  stats.positions = 3, stats.nonfinite = 1;
  EXPECT_THAT(BrokenLimits(stats, {}), ElementsAre(HasSubstr("not finite at 1 of 3")));
  stats.nonfinite = 0, stats.kl_mean = std::nan("");
  EXPECT_EQ(BrokenLimits(stats, {.kl_mean = 1}).size(), 1u);
}

TEST(TensorAccumulator, NamesTheFirstPositionAboveTheLimit) {
  const std::vector<float> reference = {3, 4, 3, 4};  // [T=2, W=2]
  std::vector<float> near = reference, far = reference;
  near[2] += 1e-4f;
  far[1] += 0.5f;
  TensorAccumulator accumulator("x", 1e-3);
  accumulator.Add(0, 2, reference, near);
  EXPECT_EQ(accumulator.Result().first_place, std::nullopt);
  accumulator.Add(1, 2, reference, far);
  EXPECT_EQ(accumulator.Result().first_place, (TokenPlace{1, 0}));
  EXPECT_NEAR(accumulator.Result().max_abs_diff, 0.5, 1e-6);
  EXPECT_NEAR(accumulator.Result().relative_rms, 0.5 / 10, 1e-6);  // sqrt(0.25 / (4 * 25))
}

TEST(TensorAccumulator, NonfiniteAndZeroReferences) {
  const std::vector<float> zeros = {0, 0}, ones = {1, 1}, nan = {1, kNan};
  const auto relative = [](const std::vector<float>& reference, const std::vector<float>& ours) {
    TensorAccumulator accumulator("x", 1);
    accumulator.Add(0, 1, reference, ours);
    return accumulator.Result().relative_rms;
  };
  EXPECT_EQ(relative(ones, nan), kInf);
  EXPECT_EQ(relative(zeros, zeros), 0);
  EXPECT_EQ(relative(zeros, ones), kInf);
}

TEST(FirstDivergent, IsTheFirstInForwardOrder) {
  const std::vector<TensorParity> tensors = {
      {.name = "embedding", .relative_rms = 1e-7, .first_place = {}},
      {.name = "layers.0.q_rope", .relative_rms = 0.3, .first_place = {}},
      {.name = "layers.0.attention", .relative_rms = 0.9, .first_place = {}}};
  ASSERT_NE(FirstDivergent(tensors, 1e-4), nullptr);
  EXPECT_EQ(FirstDivergent(tensors, 1e-4)->name, "layers.0.q_rope");
  EXPECT_EQ(FirstDivergent(tensors, 1), nullptr);
}

}  // namespace
}  // namespace ulmus::infer
