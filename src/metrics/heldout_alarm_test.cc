#include "metrics/heldout_alarm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "base/file.h"

namespace ulmus::metrics {
namespace {

using ::testing::HasSubstr;

// Steps before each evaluation, and the evaluations, of runs of a small model on real text
// (testdata/reference_curves.csv: run,kind,step,set,loss,count,applied).
std::vector<Record> Curve(const std::string& wanted) {
  const char* source = std::getenv("ULMUS_SOURCE_DIR");
  const Path root(source != nullptr ? source : ".");
  std::istringstream text(*ReadFile(root / "src/metrics/testdata/reference_curves.csv"));
  std::vector<Record> records;
  for (std::string line; std::getline(text, line);) {
    std::istringstream fields(line);
    std::string run, kind, step, set, loss, count, applied;
    for (std::string* field : {&run, &kind, &step, &set, &loss, &count, &applied})
      std::getline(fields, *field, ',');
    if (run != wanted) continue;
    if (kind == "step") {
      StepRecord record{.step = std::stoll(step), .loss = std::stod(loss)};
      record.loss_divisor = std::stoll(count);
      record.applied = std::stoll(applied);
      records.emplace_back(record);
    } else {
      const auto targets = std::stod(count);
      records.emplace_back(
          EvalRecord{.step = std::stoll(step),
                     .set = set,
                     .loss = {std::stod(loss) * targets, static_cast<int64_t>(targets)}});
    }
  }
  return records;
}

// Step of the first evaluation after which the alarm is on, 0 if it never is.
int64_t FirstAlarm(const std::vector<Record>& records, HeldoutAlarmOptions options = {}) {
  HeldoutAlarm alarm(options);
  for (size_t k = 0; k < records.size(); ++k) {
    alarm.Add(records[k]);
    const bool last_of_step =
        k + 1 == records.size() || !std::holds_alternative<EvalRecord>(records[k + 1]);
    if (last_of_step && std::holds_alternative<EvalRecord>(records[k]) && alarm.Check())
      return StepOf(records[k]);
  }
  return 0;
}

// A training loss per step, then one evaluation.
void AddPoint(HeldoutAlarm& alarm, int64_t step, double train, double heldout) {
  StepRecord record{.step = step, .loss = train};
  record.loss_divisor = 100;
  for (int k = 0; k < 20; ++k) alarm.Add(record);
  alarm.Add(EvalRecord{.step = step, .set = "a", .loss = {heldout * 10, 10}});
}

TEST(HeldoutAlarm, IsSilentOnARunThatLearns) {
  ASSERT_EQ(Curve("main").size(), 6u * 23);
  EXPECT_EQ(FirstAlarm(Curve("main")), 0);
  EXPECT_EQ(FirstAlarm(Curve("bf16_moments")), 0);
  EXPECT_EQ(FirstAlarm(Curve("heads_3x64")), 0);
}

// Both see 160 instances again and again; the control is sharded correctly, but repeats all the
// same.
TEST(HeldoutAlarm, GoesOffOnRepeatedData) {
  EXPECT_EQ(FirstAlarm(Curve("subset_double_sharded")), 100);
  EXPECT_EQ(FirstAlarm(Curve("subset_control")), 100);
}

// Each of the two rules sees the repeated data without the other.
TEST(HeldoutAlarm, EitherRuleGoesOffOnRepeatedData) {
  EXPECT_EQ(FirstAlarm(Curve("subset_double_sharded"), {.max_gap = INFINITY}), 100);
  EXPECT_EQ(FirstAlarm(Curve("subset_double_sharded"), {.min_train_fall = INFINITY}), 100);
}

TEST(HeldoutAlarm, SaysWhatWasSeenAndWhatToRun) {
  HeldoutAlarm alarm;
  AddPoint(alarm, 100, 4.0, 4.1);
  EXPECT_EQ(alarm.Check(), std::nullopt);
  AddPoint(alarm, 200, 3.5, 4.2);
  EXPECT_THAT(
      alarm.Check().value_or(""),
      HasSubstr("training loss fell from 4.0000 to 3.5000 between steps 100 and 200, held-out "
                "loss did not follow (a 4.1000 -> 4.2000; a fall by 0.0500 was expected)"));
  EXPECT_THAT(alarm.Check().value_or(""), HasSubstr("repeated data"));
  EXPECT_THAT(alarm.Check().value_or(""), HasSubstr("`ulmus data audit`"));
}

// Falls by less than min_train_fall from one evaluation to the next, but not over three of them.
TEST(HeldoutAlarm, SeesASlowFall) {
  HeldoutAlarm alarm;
  for (int k = 0; k < 3; ++k) {
    AddPoint(alarm, 100 * (k + 1), 4.0 - 0.1 * k, 4.0);
    EXPECT_EQ(alarm.Check(), std::nullopt) << k;
  }
  AddPoint(alarm, 400, 3.7, 4.0);
  EXPECT_NE(alarm.Check(), std::nullopt);
}

TEST(HeldoutAlarm, GoesOffWhenTheGapIsTooWide) {
  HeldoutAlarm alarm;
  AddPoint(alarm, 100, 2.0, 2.9);
  EXPECT_EQ(alarm.Check(), std::nullopt);
  AddPoint(alarm, 200, 1.8, 2.9);
  EXPECT_THAT(alarm.Check().value_or(""),
              HasSubstr("training loss 1.8000 is 1.1000 below every held-out set"));
}

TEST(HeldoutAlarm, SkippedStepsDoNotCount) {
  HeldoutAlarm alarm;
  AddPoint(alarm, 100, 4.0, 4.0);
  StepRecord bad{.step = 101, .loss = std::nan("")};
  bad.loss_divisor = 100;
  alarm.Add(bad);
  bad.loss = 1e9;
  bad.applied = 0;
  alarm.Add(bad);
  alarm.Add(EvalRecord{.step = 102, .set = "a", .loss = {40, 10}});
  EXPECT_EQ(alarm.Check(), std::nullopt);
}

// A run that resumes feeds the records it has; the alarm then says the same from there on.
TEST(HeldoutAlarm, IsAFunctionOfTheRecords) {
  const std::vector<Record> records = Curve("subset_double_sharded");
  HeldoutAlarm through;
  for (const Record& record : records) through.Add(record);
  HeldoutAlarm again;
  for (const Record& record : records) again.Add(record);
  ASSERT_NE(through.Check(), std::nullopt);
  EXPECT_EQ(through.Check(), again.Check());
}

}  // namespace
}  // namespace ulmus::metrics
