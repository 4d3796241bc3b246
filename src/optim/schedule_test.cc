#include "optim/schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "optim/testing.h"

namespace ulmus::optim {
namespace {

using testing::HasSubstr;

double At(const SchedulePhase& phase, int64_t step) {
  return LearningRate({.phases = {phase}}, step, 0);
}

constexpr double kMidLr = 0.00020712352850360292;

const std::map<std::string, SchedulePhase>& GoldenPhases() {
  static const std::map<std::string, SchedulePhase> phases = {
      {"cos_with_warmup 7B part1", {.kind = "cosine", .warmup = 2000, .t_max = 1192093}},
      {"half_cos 7B part2", {.kind = "half_cosine", .warmup = 597046, .t_max = 1668931}},
      {"linear 7B midtrain", {.kind = "linear", .lr = kMidLr, .t_max = 47684, .final_fraction = 0}},
      {"linear 7B long context",
       {.kind = "linear", .lr = kMidLr, .warmup = 200, .t_max = 11921, .final_fraction = 0}},
      {"cos_with_warmup 32B", {.kind = "cosine", .lr = 6e-4, .warmup = 2000, .t_max = 707000}},
      // int(1414078 * (2000 / 1414078)) is 1999 in double arithmetic.
      {"maxtext cosine", {.kind = "maxtext_cosine", .warmup = 1999, .t_max = 1414078}},
  };
  return phases;
}

TEST(Schedule, EqualsTheReferencesToTheLastDigits) {
  int64_t checked = 0;
  const auto golden = Golden()["schedules"];
  for (const auto& [name, values] : golden.items()) {
    const auto it = std::ranges::find_if(GoldenPhases(), [&, &name = name](const auto& entry) {
      return name.starts_with(entry.first);
    });
    ASSERT_NE(it, GoldenPhases().end()) << name;
    // The file counts MaxText's updates from 0.
    const int64_t first = it->second.kind == "maxtext_cosine" ? 1 : 0;
    for (const auto& [step, want] : values.items()) {
      const double got = At(it->second, std::stoll(step) + first);
      EXPECT_NEAR(got, want.get<double>(), 4e-16 * std::fabs(it->second.lr)) << name << " " << step;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 46);
}

// AI2's stage 1: two curves in one run, which meet at the midpoint of the first.
TEST(Schedule, TheTwoCurvesOfStage1Meet) {
  const Schedule stage1{
      .phases = {{.kind = "cosine", .warmup = 2000, .t_max = 1192093, .until = 597046},
                 {.kind = "half_cosine", .warmup = 597046, .t_max = 1668931}}};
  ASSERT_EQ(ValidateSchedule(stage1), Status());
  EXPECT_NEAR(LearningRate(stage1, 597046, 0), 1.650001781857e-4, 1e-16);
  EXPECT_NEAR(LearningRate(stage1, 597047, 0), 1.649998021640e-4, 1e-16);
  EXPECT_NEAR(LearningRate(stage1, 1413814, 0), 3.932527167181e-5, 1e-17);
}

// 4,194,304 tokens a step: the curve over tokens is the curve over steps.
TEST(Schedule, TokensAndStepsAgree) {
  constexpr int64_t kBatch = 4194304;
  const SchedulePhase steps{.kind = "cosine", .warmup = 2000, .t_max = 1192093};
  SchedulePhase tokens = steps;
  tokens.warmup *= kBatch;
  tokens.t_max *= kBatch;
  const Schedule by_tokens{.unit = ScheduleUnit::kTokens, .phases = {tokens}};
  for (const int64_t step : {1, 1999, 2000, 100000, 1192092, 1192093})
    EXPECT_NEAR(LearningRate(by_tokens, step, step * kBatch), At(steps, step), 1e-18) << step;
}

// B30 of the public cases.
TEST(Schedule, FirstStepEdgeAndEndOfEveryKind) {
  for (const ScheduleDef& def : Schedules()) {
    for (const int64_t warmup : {int64_t{10}, int64_t{1}, int64_t{0}}) {
      if (warmup == 0 && def.needs_warmup) continue;
      const SchedulePhase phase{.kind = std::string(def.name),
                                .lr = 1,
                                .warmup = warmup,
                                .t_max = 100,
                                .decay = def.uses_decay ? 20 : 0};
      ASSERT_EQ(ValidateSchedule({.phases = {phase}}), Status()) << def.name;
      for (int64_t step = 1; step <= 120; ++step) {
        EXPECT_TRUE(std::isfinite(At(phase, step))) << def.name << " " << warmup << " " << step;
        EXPECT_GE(At(phase, step), 0) << def.name << " " << warmup << " " << step;
        EXPECT_LE(At(phase, step), 1) << def.name << " " << warmup << " " << step;
      }
      // Only MaxText's first update is lost to a rate of 0.
      if (def.name == "maxtext_cosine" && warmup > 0) {
        EXPECT_EQ(At(phase, 1), 0);
      } else {
        EXPECT_GT(At(phase, 1), 0) << def.name << " " << warmup;
      }
    }
  }
}

// B31.
TEST(Schedule, EdgesAreFinite) {
  EXPECT_EQ(At({.kind = "wsd", .lr = 1, .warmup = 4, .t_max = 10, .decay = 0}, 10), 1);
  EXPECT_EQ(At({.kind = "wsd", .lr = 1, .t_max = 10, .decay = 4}, 8), 0.5);
  EXPECT_EQ(At({.kind = "wsd", .lr = 1, .t_max = 10, .decay = 4}, 10), 0);
  EXPECT_EQ(At({.kind = "wsd", .lr = 1, .t_max = 10, .decay = 4}, 11), 0);
  EXPECT_EQ(At({.kind = "cosine", .lr = 1, .t_max = 1}, 1), 0.1);
  EXPECT_EQ(At({.kind = "cosine", .lr = 1, .warmup = 5, .t_max = 5}, 5), 0.1);
  EXPECT_EQ(At({.kind = "linear", .lr = 1, .t_max = 1, .final_fraction = 0}, 1), 0);
  EXPECT_EQ(At({.kind = "maxtext_cosine", .lr = 1, .t_max = 1}, 1), 0.1);
  EXPECT_EQ(At({.kind = "maxtext_cosine", .lr = 1, .warmup = 1, .t_max = 1}, 2), 0);
  EXPECT_DOUBLE_EQ(At({.kind = "power_law", .lr = 1, .warmup = 100}, 1000), std::pow(10, -0.51));
  EXPECT_DOUBLE_EQ(At({.kind = "inverse_sqrt", .lr = 1, .warmup = 100}, 400), 0.1 + 0.9 * 0.5);
}

TEST(Schedule, APhaseMayGoOnFromTheRateReached) {
  const Schedule schedule{
      .phases = {{.kind = "linear", .lr = 1, .t_max = 100, .final_fraction = 0.5, .until = 50},
                 {.kind = "linear", .t_max = 10, .final_fraction = 0, .restart = true}}};
  ASSERT_EQ(ValidateSchedule(schedule), Status());
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 50, 0), 0.75);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 55, 0), 0.375);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 60, 0), 0);
}

// B31.
TEST(Schedule, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const double nan = std::nan("");
  const struct {
    SchedulePhase phase;
    const char* message;
  } cases[] = {
      {{.kind = "cosin", .t_max = 10}, "did you mean 'cosine'?"},
      {{.kind = "cosine"}, "t_max = 0"},
      {{.kind = "cosine", .warmup = 3000, .t_max = 2000}, "warmup 3000 > t_max 2000"},
      {{.kind = "wsd", .warmup = 60, .t_max = 100, .decay = 50},
       "warmup 60 + decay 50 = 110 > t_max 100"},
      {{.kind = "cosine", .lr = -1, .t_max = 10}, "lr = -1"},
      {{.kind = "cosine", .lr = nan, .t_max = 10}, "lr = nan"},
      {{.kind = "cosine", .lr = 0, .t_max = 10}, "lr = 0"},
      {{.kind = "cosine", .t_max = 10, .final_fraction = 1.5}, "final_fraction = 1.5"},
      {{.kind = "cosine", .warmup = -1, .t_max = 10}, "warmup = -1"},
      {{.kind = "cosine", .t_max = 10, .warmup_min_lr = 1}, "lowest rate 1"},
      {{.kind = "power_law"}, "warmup = 0"},
      {{.kind = "constant", .restart = true}, "nothing before it"},
  };
  for (const auto& c : cases) {
    const Status status = ValidateSchedule({.phases = {c.phase}});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(status.message(), HasSubstr(c.message));
  }
  EXPECT_THAT(ValidateSchedule({}).message(), HasSubstr("no phase"));
  const SchedulePhase phase{.kind = "constant"};
  EXPECT_THAT(ValidateSchedule({.phases = {phase, phase}}).message(), HasSubstr("ends at 0"));
}

}  // namespace
}  // namespace ulmus::optim
