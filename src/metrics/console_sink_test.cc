#include "metrics/console_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "metrics/record_testing.h"

namespace ulmus::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class Console : public testing::Test {
 protected:
  ConsoleOptions Options(bool terminal) {
    return {
        .resume_step = 0,
        .total_steps = 40,
        .line_interval = 10,
        .log = [this](LogLevel level, std::string_view line) { lines_.emplace_back(level, line); },
        .progress = {.quiet_s = 0,
                     .terminal = terminal,
                     .now_s = [this] { return now_s_; },
                     .draw = [this](std::string_view text) { drawn_.emplace_back(text); }}};
  }
  void WriteSteps(ConsoleSink& sink, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      now_s_ += 1;
      StepRecord record = TestStep(step);
      record.applied = 1;
      ASSERT_EQ(sink.Write(record), Status());
    }
  }

  double now_s_ = 0;
  std::vector<std::pair<LogLevel, std::string>> lines_;
  std::vector<std::string> drawn_;
};

TEST_F(Console, WithoutATerminalThereIsALineEveryFewSteps) {
  ConsoleSink sink(Options(false));
  WriteSteps(sink, 1, 25);
  std::vector<std::string> starts;
  for (const auto& [level, line] : lines_) {
    EXPECT_EQ(level, LogLevel::kInfo);
    starts.push_back(line.substr(0, line.find(':')));
  }
  EXPECT_THAT(starts, ElementsAre("step 1/40", "step 10/40", "step 20/40"));
  EXPECT_THAT(drawn_, IsEmpty());
}

TEST_F(Console, LineSaysWhatIsKnownAndWhatIsNot) {
  ConsoleSink sink(Options(false));
  StepRecord record = TestStep(40);
  record.applied = 1;
  record.skipped = 2;
  ASSERT_EQ(sink.Write(record), Status());
  record.mfu = 0.4321;
  ASSERT_EQ(sink.Write(record), Status());
  EXPECT_EQ(lines_[0].second,
            "step 40/40: loss 0.2089, grad norm 0.047, lr 0.0016, 40960 tokens/s, MFU n/a, waited "
            "1.0 % for data, 2 skipped");
  EXPECT_THAT(lines_[1].second, HasSubstr("MFU 43.2 %"));
}

TEST_F(Console, SkippedUpdateIsAWarningWhateverItsStep) {
  ConsoleSink sink(Options(false));
  StepRecord record = TestStep(17);
  record.applied = 0;
  ASSERT_EQ(sink.Write(record), Status());
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].first, LogLevel::kWarning);
  EXPECT_THAT(lines_[0].second, HasSubstr("step 17/40"));
  EXPECT_THAT(lines_[0].second, HasSubstr("this update was skipped"));
}

TEST_F(Console, EvaluationsAndEventsAreLines) {
  ConsoleSink sink(Options(false));
  ASSERT_EQ(sink.Write(EvalRecord{.step = 20, .set = "bible", .loss = {92, 10}}), Status());
  ASSERT_EQ(
      sink.Write(EventRecord{.step = 20, .name = "save", .text = "checkpoints/step-00000020"}),
      Status());
  ASSERT_EQ(sink.Write(EventRecord{.step = 20, .name = "alarm", .text = "repeated data"}),
            Status());
  EXPECT_THAT(
      lines_,
      ElementsAre(std::pair(LogLevel::kInfo, "step 20: held-out bible 9.2000 over 10 targets"),
                  std::pair(LogLevel::kInfo, "step 20: save: checkpoints/step-00000020"),
                  std::pair(LogLevel::kWarning, "step 20: alarm: repeated data")));
}

// The rate after a resume is that of the steps done since: 10 of the 20 left, at a second each.
TEST_F(Console, OnATerminalABarShowsTheTimeLeft) {
  ConsoleOptions options = Options(true);
  options.resume_step = 20;
  ConsoleSink sink(std::move(options));
  WriteSteps(sink, 21, 30);
  ASSERT_THAT(drawn_, Not(IsEmpty()));
  EXPECT_THAT(drawn_.back(), HasSubstr("50% 10/20 steps, 1 steps/s, 10s left"));
  EXPECT_THAT(lines_[0].second, StartsWith("step 21/40: loss"));
}

}  // namespace
}  // namespace ulmus::metrics
