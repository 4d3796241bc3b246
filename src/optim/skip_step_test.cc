#include "optim/skip_step.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "optim/testing.h"

namespace ulmus::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Factors(SkipHistory& history, const nlohmann::json& steps) {
  std::vector<double> factors;
  for (const auto& step : steps) {
    const double loss = step[0].is_null() ? kNan : step[0].get<double>();
    const double norm = step[1].get<double>();
    factors.push_back(history.Limits().Applies(loss, norm) ? 1 : 0);
    history.Append(loss, norm);
  }
  return factors;
}

TEST(SkipHistory, DecidesAsOlmoCore) {
  const auto golden = Golden()["skip"];
  SkipHistory history({.interval = golden["rolling_interval_length"],
                       .sigma = golden["sigma_factor"],
                       .keep_non_finite = true});
  EXPECT_EQ(Factors(history, golden["loss_gradnorm"]),
            golden["step_factor"].get<std::vector<double>>());
}

// The same steps: the one with the NaN is skipped, the one after it is not.
TEST(SkipHistory, ForgetsWhatIsNotFinite) {
  const auto golden = Golden()["skip"];
  SkipHistory history({.interval = 8, .sigma = 6});
  std::vector<double> want = golden["step_factor"];
  want.back() = 1;
  EXPECT_EQ(Factors(history, golden["loss_gradnorm"]), want);
  for (const double loss : history.losses()) EXPECT_TRUE(std::isfinite(loss));
}

TEST(SkipHistory, WithoutHistoryOnlyFiniteStepsApply) {
  const SkipHistory history;
  EXPECT_TRUE(history.Limits().Applies(1e30, 1e30));
  EXPECT_FALSE(history.Limits().Applies(kNan, 1));
  EXPECT_FALSE(history.Limits().Applies(1, kNan));
  EXPECT_FALSE(history.Limits().Applies(std::numeric_limits<double>::infinity(), 1));
}

// 63 values and the coming one are 64: the first decision.
TEST(SkipHistory, StartsAtHalfTheInterval) {
  SkipHistory history;
  for (int i = 0; i < 62; ++i) history.Append(2, 1);
  EXPECT_TRUE(history.Limits().Applies(100, 100));
  history.Append(2, 1);
  EXPECT_FALSE(history.Limits().Applies(100, 1));
  EXPECT_TRUE(history.Limits().Applies(2, 1));  // inclusive: a constant history has std 0
}

TEST(SkipHistory, LimitIsTheUnbiasedDeviationByHand) {
  SkipHistory history({.interval = 4, .sigma = 2});
  for (const double loss : {9.0, 1.0, 2.0, 3.0, 6.0}) history.Append(loss, 1);  // 9 has left
  EXPECT_THAT(history.losses(), ElementsAre(1, 2, 3, 6));
  // mean 3, squares 4 + 1 + 0 + 9 = 14, std sqrt(14/3)
  EXPECT_DOUBLE_EQ(history.Limits().loss, 3 + 2 * std::sqrt(14.0 / 3));
  EXPECT_DOUBLE_EQ(history.Limits().grad_norm, 1);
}

TEST(SkipHistory, ContinuesAfterRestore) {
  SkipHistory straight({.interval = 8}), stopped({.interval = 8});
  for (int i = 0; i < 20; ++i) {
    if (i == 11) {
      SkipHistory next({.interval = 8});
      ASSERT_EQ(next.Restore(stopped.losses(), stopped.grad_norms()), Status());
      stopped = next;
    }
    straight.Append(std::sin(i), std::cos(i));
    stopped.Append(std::sin(i), std::cos(i));
  }
  EXPECT_EQ(straight.Limits().loss, stopped.Limits().loss);
  EXPECT_EQ(straight.losses(), stopped.losses());
}

TEST(SkipHistory, RefusesDamagedState) {
  SkipHistory history({.interval = 4});
  EXPECT_EQ(history.Restore({1, 2}, {1}).code(), StatusCode::kDataLoss);
  EXPECT_EQ(history.Restore({1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}).code(), StatusCode::kDataLoss);
  EXPECT_THAT(history.Restore({kNan}, {1}).message(), HasSubstr("not finite"));
  EXPECT_THAT(ValidateSkipOptions({.interval = 1}).message(), HasSubstr("interval = 1"));
  EXPECT_THAT(ValidateSkipOptions({.sigma = kNan}).message(), HasSubstr("sigma = nan"));
}

}  // namespace
}  // namespace ulmus::optim
