#include "metrics/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metrics/record_testing.h"

namespace ulmus::metrics {
namespace {

using ::testing::IsEmpty;

void Train(const RunPaths& paths, int64_t resume_step, int64_t last_step) {
  SetMinLogLevel(LogLevel::kError);
  Result<Recorder> recorder =
      Recorder::Open(paths, {.resume_step = resume_step, .total_steps = 40});
  ASSERT_TRUE(recorder.ok()) << recorder.error().message();
  for (int64_t step = resume_step + 1; step <= last_step; ++step)
    ASSERT_EQ(recorder->Write(TestStep(step)), Status());
  ASSERT_EQ(recorder->Flush(), Status());
}

// B52 of the public cases.
TEST(Recorder, EachStepIsThereOnceAfterARestart) {
  const TempDir folder;
  const RunPaths paths{folder.path()};
  Train(paths, 0, 25);
  Train(paths, 20, 40);
  EXPECT_EQ(JsonSteps(paths.metrics()), OneTo(40));
  EXPECT_EQ(ShownSteps(paths.root), OneTo(40));
}

TEST(Recorder, StartingAnewKeepsNoStep) {
  const TempDir folder;
  const RunPaths paths{folder.path()};
  Train(paths, 0, 5);
  Train(paths, 0, 3);
  EXPECT_EQ(JsonSteps(paths.metrics()), OneTo(3));
  EXPECT_EQ(ShownSteps(paths.root), OneTo(3));
}

TEST(Recorder, SaysWhatItRepaired) {
  const TempDir folder;
  const RunPaths paths{folder.path()};
  Train(paths, 0, 25);
  Result<Recorder> recorder = Recorder::Open(paths, {.resume_step = 20, .total_steps = 40});
  ASSERT_TRUE(recorder.ok());
  EXPECT_EQ(recorder->repair().kept, 20);
  EXPECT_EQ(recorder->repair().dropped, 5);
}

TEST(Recorder, WritesNoEventFilesUnlessAsked) {
  const TempDir folder;
  const RunPaths paths{folder.path()};
  ASSERT_TRUE(Recorder::Open(paths, {.tensorboard = false}).ok());
  EXPECT_THAT(*ListEventFiles(paths.root), IsEmpty());
}

class FailingSink : public Sink {
 public:
  explicit FailingSink(std::string name) : name_(std::move(name)) {}
  Status Write(const Record&) override { return ResourceExhaustedError("{}", name_); }
  Status Flush() override { return ResourceExhaustedError("{}", name_); }

 private:
  std::string name_;
};

class CountingSink : public Sink {
 public:
  explicit CountingSink(int& count) : count_(count) {}
  Status Write(const Record&) override {
    ++count_;
    return {};
  }
  Status Flush() override {
    ++count_;
    return {};
  }

 private:
  int& count_;
};

TEST(Recorder, OneSinkThatFailsKeepsTheRecordFromNoOther) {
  int count = 0;
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<FailingSink>("first"));
  sinks.push_back(std::make_unique<CountingSink>(count));
  sinks.push_back(std::make_unique<FailingSink>("second"));
  Recorder recorder(std::move(sinks));
  EXPECT_EQ(recorder.Write(TestStep(1)).message(), "first");
  EXPECT_EQ(recorder.Flush().message(), "first");
  EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace ulmus::metrics
