#include "metrics/jsonl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics/record_json.h"
#include "metrics/record_testing.h"

namespace ulmus::metrics {
namespace {

using ::testing::HasSubstr;

void WriteSteps(const Path& path, int64_t first, int64_t last) {
  Result<std::unique_ptr<Sink>> sink = JsonlSink::Open(path);
  ASSERT_TRUE(sink.ok()) << sink.error().message();
  for (int64_t step = first; step <= last; ++step)
    ASSERT_EQ((*sink)->Write(TestStep(step)), Status());
}

std::string Lines(int64_t first, int64_t last) {
  std::string text;
  for (int64_t step = first; step <= last; ++step) text += ToJson(TestStep(step)) + "\n";
  return text;
}

class Metrics : public testing::Test {
 protected:
  const TempDir folder_;
  const Path path_ = folder_.path() / "metrics.jsonl";
};

TEST_F(Metrics, ReadsBackWhatWasWritten) {
  WriteSteps(path_, 1, 3);
  EXPECT_EQ(ReadAll(path_), (std::vector<Record>{TestStep(1), TestStep(2), TestStep(3)}));
}

// More than one piece of the reader's buffer, with lines across its ends.
TEST_F(Metrics, ReadsAFileOfManyPieces) {
  WriteSteps(path_, 1, 1000);
  ASSERT_GT(*FileSizeBytes(path_), 4 << 16);
  EXPECT_EQ(JsonSteps(path_), OneTo(1000));
}

TEST_F(Metrics, TornLastLineIsPassedOverWhereverItTears) {
  const std::string whole = Lines(1, 2), torn = Lines(3, 3);
  for (size_t size = 0; size < torn.size(); size += 11) {
    PutFile(path_, whole + torn.substr(0, size));
    ASSERT_EQ(JsonSteps(path_), OneTo(2)) << size;
  }
}

// B52.
TEST_F(Metrics, TornLastLineIsNotGluedToTheNext) {
  const std::string whole = Lines(1, 2), torn = Lines(3, 3);
  for (size_t size = 0; size < torn.size(); size += 37) {
    PutFile(path_, whole + torn.substr(0, size));
    const Result<MetricsRepair> repair = RepairMetrics(path_, 2);
    ASSERT_TRUE(repair.ok()) << repair.error().message();
    ASSERT_EQ(repair->torn_bytes, static_cast<int64_t>(size));
    WriteSteps(path_, 3, 4);
    ASSERT_EQ(*ReadFile(path_), Lines(1, 4)) << size;
  }
}

TEST_F(Metrics, OtherDamageIsNamedWithItsLine) {
  const std::pair<std::string, std::string> cases[] = {
      {Lines(1, 2) + "{\"kind\":\n" + Lines(3, 3), "metrics.jsonl:3: not a JSON object"},
      {Lines(1, 1) + "\n" + Lines(2, 2), "metrics.jsonl:2: not a JSON object"},
      {Lines(1, 3) + Lines(3, 3), "metrics.jsonl:4: step 3 comes after step 3"},
      {Lines(1, 3) + Lines(2, 3), "metrics.jsonl:4: step 2 comes after step 3"},
      {Lines(1, 1).insert(9, 2 << 20, ' '), "metrics.jsonl:1: longer than 1048576 bytes"},
  };
  for (const auto& [text, message] : cases) {
    PutFile(path_, text);
    const Status read = ReadMetrics(path_, [](const Record&) { return Status(); });
    EXPECT_EQ(read.code(), StatusCode::kDataLoss);
    EXPECT_THAT(read.message(), HasSubstr(message));
    const Result<MetricsRepair> repair = RepairMetrics(path_, 2);
    EXPECT_EQ(repair.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(repair.status().message(), HasSubstr("move the file away"));
    EXPECT_EQ(*ReadFile(path_), text) << "a file that is not understood is not touched";
  }
}

TEST_F(Metrics, RepairDropsStepsAfterTheResume) {
  WriteSteps(path_, 1, 25);
  std::vector<int64_t> kept;
  const Result<MetricsRepair> repair =
      RepairMetrics(path_, 20, [&](const Record& record) { kept.push_back(StepOf(record)); });
  ASSERT_TRUE(repair.ok());
  EXPECT_EQ(kept, OneTo(20));
  EXPECT_EQ(repair->kept, 20);
  EXPECT_EQ(repair->dropped, 5);
  EXPECT_EQ(repair->last_step, 20);
  EXPECT_EQ(*ReadFile(path_), Lines(1, 20));
}

// The event of an asynchronous save of step 2 comes after the record of step 3.
TEST_F(Metrics, RepairKeepsWhatStandsBehindDroppedRecords) {
  const std::string save = ToJson(EventRecord{.step = 2, .name = "save", .text = ""}) + "\n";
  PutFile(path_, Lines(1, 3) + save + Lines(4, 4));
  ASSERT_TRUE(RepairMetrics(path_, 2).ok());
  EXPECT_EQ(*ReadFile(path_), Lines(1, 2) + save);
}

TEST_F(Metrics, StartingAnewKeepsOnlyEvents) {
  const std::string start = ToJson(EventRecord{.step = 0, .name = "start", .text = ""}) + "\n";
  const std::string eval = ToJson(EvalRecord{.step = 0, .set = "a", .loss = {8, 1}}) + "\n";
  PutFile(path_, start + eval + Lines(1, 2));
  ASSERT_TRUE(RepairMetrics(path_, 0).ok());
  EXPECT_EQ(*ReadFile(path_), start);
}

TEST_F(Metrics, RepairOfAFileInOrderWritesNothing) {
  WriteSteps(path_, 1, 5);
  const auto before = std::filesystem::last_write_time(path_);
  std::filesystem::last_write_time(path_, before - std::chrono::hours(1));
  ASSERT_TRUE(RepairMetrics(path_, 5).ok());
  EXPECT_EQ(std::filesystem::last_write_time(path_), before - std::chrono::hours(1));
  EXPECT_TRUE(RepairMetrics(folder_.path() / "none", 5).ok());
  EXPECT_FALSE(*PathExists(folder_.path() / "none"));
}

TEST_F(Metrics, FullDiskLosesNothingWrittenBefore) {
  WriteSteps(path_, 1, 2);
  const Result<std::unique_ptr<Sink>> sink = JsonlSink::Open(path_);
  ASSERT_TRUE(sink.ok());
  {
    const FileSizeLimit limit(*FileSizeBytes(path_) + 100);  // room for a part of a line
    const Status written = (*sink)->Write(TestStep(3));
    EXPECT_EQ(written.code(), StatusCode::kResourceExhausted) << written.message();
    EXPECT_THAT(written.message(), HasSubstr("metrics.jsonl"));
    EXPECT_EQ(*ReadFile(path_), Lines(1, 2));
    EXPECT_FALSE((*sink)->Write(TestStep(3)).ok());
  }
  EXPECT_EQ((*sink)->Write(TestStep(3)), Status());  // there is space again
  EXPECT_EQ(*ReadFile(path_), Lines(1, 3));
}

TEST_F(Metrics, SurvivesKillsAtAnyMoment) {
  ASSERT_TRUE(JsonlSink::Open(path_).ok());
  int64_t resume = 0;
  for (int round = 0; round < 6; ++round) {
    const int64_t size_before = *FileSizeBytes(path_);
    const pid_t child = fork();
    if (child == 0) {
      const Result<std::unique_ptr<Sink>> sink = JsonlSink::Open(path_);
      for (int64_t step = resume + 1; sink.ok() && step < resume + 100'000; ++step)
        if (!(*sink)->Write(TestStep(step)).ok()) break;
      _exit(1);
    }
    // Once it writes, for a time that differs from round to round.
    while (*FileSizeBytes(path_) < size_before + 5'000) usleep(100);
    usleep(static_cast<useconds_t>(300 * round));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const Result<MetricsRepair> repair = RepairMetrics(path_, INT64_MAX);
    ASSERT_TRUE(repair.ok()) << repair.error().message();
    // As from a checkpoint some steps back.
    ASSERT_GT(repair->last_step, resume);
    resume = repair->last_step - 5;
    ASSERT_TRUE(RepairMetrics(path_, resume).ok());
    ASSERT_EQ(JsonSteps(path_), OneTo(resume));
  }
  EXPECT_GT(resume, 0);
}

}  // namespace
}  // namespace ulmus::metrics
