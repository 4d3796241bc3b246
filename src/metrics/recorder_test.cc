#include "metrics/recorder.h"

#include <gtest/gtest.h>

#include "metrics/tensorboard.h"

namespace ulmus::metrics {
namespace {

StepRecord Step(int64_t step) {
  StepRecord record;
  record.step = step;
  record.tokens = step * 4096;
  record.loss = 9.0 / static_cast<double>(step);
  record.id_hash = "0123456789abcdef";
  return record;
}

std::vector<int64_t> JsonSteps(const Path& path) {
  std::vector<int64_t> steps;
  const Status read = ReadMetrics(path, [&](const Record& record) {
    if (std::holds_alternative<StepRecord>(record)) steps.push_back(StepOf(record));
    return Status();
  });
  EXPECT_TRUE(read.ok()) << read.message();
  return steps;
}

std::vector<int64_t> EventSteps(const Path& folder) {
  std::vector<int64_t> steps;
  const Result<std::vector<Path>> files = ListEventFiles(folder);
  for (const Path& path : *files) {
    const Status read = ReadEvents(path, [&](const Event& event) {
      if (!event.values.empty()) steps.push_back(event.step);
      return Status();
    });
    EXPECT_TRUE(read.ok()) << read.message();
  }
  return steps;
}

std::vector<int64_t> OneTo(int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step) steps.push_back(step);
  return steps;
}

void Train(const RunPaths& paths, int64_t resume_step, int64_t last_step) {
  Result<Recorder> recorder =
      Recorder::Open(paths, {.resume_step = resume_step, .total_steps = 40});
  ASSERT_TRUE(recorder.ok()) << recorder.error().message();
  for (int64_t step = resume_step + 1; step <= last_step; ++step)
    ASSERT_TRUE(recorder->Write(Step(step)).ok());
  ASSERT_TRUE(recorder->Flush().ok());
}

TEST(Recorder, EachStepIsThereOnceAfterARestart) {
  const TempDir folder;
  const RunPaths paths{folder.path()};
  Train(paths, 0, 25);
  Train(paths, 20, 40);
  EXPECT_EQ(JsonSteps(paths.metrics()), OneTo(40));
  EXPECT_EQ(EventSteps(paths.root), OneTo(40));
}

TEST(Recorder, StartingAnewKeepsNoStep) {
  const TempDir folder;
  const RunPaths paths{folder.path()};
  Train(paths, 0, 5);
  Train(paths, 0, 3);
  EXPECT_EQ(JsonSteps(paths.metrics()), OneTo(3));
  EXPECT_EQ(EventSteps(paths.root), OneTo(3));
}

}  // namespace
}  // namespace ulmus::metrics
