#include "checkpoint/run_checkpoints.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/atomic_directory.h"
#include "checkpoint/open.h"

namespace ulmus::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunCheckpoints : public ::testing::Test {
 protected:
  Status Save(int64_t step) {
    const TensorInfo weight{"w", {DType::kF32, {64}}};
    const auto writer = TRY(NativeWriter::Create(StepPath(folder_, step), {weight},
                                                 {.step = step, .overwrite = true, .sync = false}));
    TRY(writer->Begin(weight));
    const std::vector<float> values(64, static_cast<float>(step));
    TRY(writer->Append(std::as_bytes(std::span(values))));
    TRY(writer->SetTrainState(fmt::format(R"({{"step":{}}})", step)));
    return writer->Commit();
  }
  int64_t Newest() {
    const auto opened = OpenNewest(folder_);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    return opened.ok() && opened->opened ? opened->opened->step : -1;
  }

  TempDir temp_;
  Path run_ = temp_.path() / "run";
  Path folder_ = run_ / kRunFolder;
};

TEST_F(RunCheckpoints, NoneIsNoError) {
  EXPECT_THAT(*ListSteps(folder_), IsEmpty());
  EXPECT_EQ(Newest(), -1);
  ASSERT_TRUE(CreateDirectories(folder_).ok());
  EXPECT_EQ(Newest(), -1);
  EXPECT_THAT(OpenStep(folder_, 3).status().message(), HasSubstr("available: none"));
  EXPECT_EQ(OpenSource(run_).status().code(), StatusCode::kNotFound);
}

TEST_F(RunCheckpoints, NewestIsThatOfTheHighestStepThatIsComplete) {
  for (const int64_t step : {100, 20, 3}) ASSERT_TRUE(Save(step).ok());
  EXPECT_THAT(*ListSteps(folder_), ElementsAre(3, 20, 100));
  EXPECT_EQ(Newest(), 100);
  EXPECT_EQ(OpenSource(run_)->path, StepPath(folder_, 100));
  ASSERT_TRUE(RemoveFile(StepPath(folder_, 100) / kManifestName).ok());
  EXPECT_EQ(Newest(), 20);
  EXPECT_EQ(OpenSource(run_)->path, StepPath(folder_, 20));
  ASSERT_TRUE(RemoveFile(StepPath(folder_, 20) / "w" / "c" / "0").ok());
  EXPECT_EQ(Newest(), 3);
}

TEST_F(RunCheckpoints, ADamagedChunkIsPassedOverWhenAllIsVerified) {
  for (const int64_t step : {20, 100}) ASSERT_TRUE(Save(step).ok());
  const Path chunk = StepPath(folder_, 100) / "w" / "c" / "0";
  std::string bytes = *ReadFile(chunk);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_TRUE(WriteFileAtomic(chunk, bytes).ok());
  EXPECT_EQ(Newest(), 100);  // names and sizes are those of the manifest
  const auto newest = OpenNewest(folder_, {.full = true});
  ASSERT_TRUE(newest.ok() && newest->opened);
  EXPECT_EQ(newest->opened->step, 20);
  ASSERT_EQ(newest->passed_over.size(), 1u);
  EXPECT_EQ(newest->passed_over[0].step, 100);
  EXPECT_THAT(newest->passed_over[0].why, HasSubstr("w/c/0 (checksum differs)"));
  EXPECT_EQ(OpenStep(folder_, 100, {.full = true}).status().code(), StatusCode::kDataLoss);
}

TEST_F(RunCheckpoints, AFolderUnderAnotherStepsNameDoesNotCount) {
  for (const int64_t step : {20, 40}) ASSERT_TRUE(Save(step).ok());
  ASSERT_TRUE(Rename(StepPath(folder_, 40), StepPath(folder_, 100)).ok());
  EXPECT_EQ(Newest(), 20);
  const Status status = OpenStep(folder_, 100).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("manifest is of step 40"));
  // It does not stand for one of those that are kept either.
  ASSERT_TRUE(PruneSteps(folder_, {.last = 1}).ok());
  EXPECT_EQ(Newest(), 20);
}

TEST_F(RunCheckpoints, AnAbsentStepNamesThoseThereAre) {
  for (const int64_t step : {100, 20}) ASSERT_TRUE(Save(step).ok());
  const Status status = OpenStep(folder_, 999).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("available: 20, 100"));
  EXPECT_EQ(*OpenStep(folder_, 20)->reader->LoadTrainState(), R"({"step":20})");
}

TEST_F(RunCheckpoints, OtherNamesAreNoSteps) {
  for (const char* name : {"step-7", "step-", "step-0000007x", "step--0000007", "step-000000007",
                           "step-00000007.incomplete", "step-99999999999999999999", "latest"})
    ASSERT_TRUE(CreateDirectories(folder_ / name).ok());
  EXPECT_THAT(*ListSteps(folder_), IsEmpty());
  ASSERT_TRUE(Save(123'456'789).ok());
  EXPECT_THAT(*ListSteps(folder_), ElementsAre(123'456'789));
}

// A copy that was cut off, or a removal: the run comes to that step again and saves it.
TEST_F(RunCheckpoints, AStepThatIsNotCompleteIsSavedAgain) {
  ASSERT_TRUE(Save(8).ok());
  ASSERT_TRUE(RemoveFile(StepPath(folder_, 8) / kManifestName).ok());
  ASSERT_TRUE(RemoveTree(StepPath(folder_, 8) / "w" / "c").ok());
  ASSERT_TRUE(CreateDirectories(StepPath(folder_, 9)).ok());
  for (const int64_t step : {8, 9}) {
    ASSERT_TRUE(Save(step).ok());
    EXPECT_EQ(Newest(), step);
  }
  // What somebody else keeps under that name is not ours to delete.
  ASSERT_TRUE(CreateDirectories(StepPath(folder_, 10)).ok());
  ASSERT_TRUE(WriteFileAtomic(StepPath(folder_, 10) / "notes.txt", "x").ok());
  EXPECT_EQ(Save(10).code(), StatusCode::kFailedPrecondition);
}

TEST_F(RunCheckpoints, LeftoversOfSavesThatDiedAreRemoved) {
  ASSERT_TRUE(Save(8).ok());
  ASSERT_TRUE(CreateDirectories(folder_ / "step-00000012.incomplete" / "w").ok());
  ASSERT_TRUE(CreateDirectories(folder_ / "step-00000008.incomplete.old").ok());
  ASSERT_TRUE(CreateDirectories(folder_ / "notes.incomplete").ok());
  ASSERT_TRUE(RemoveLeftovers(folder_).ok());
  EXPECT_THAT(*ListDirectory(folder_), ElementsAre("notes.incomplete", "step-00000008"));
  EXPECT_EQ(Newest(), 8);
}

// Killed between the two renames of a file system that cannot swap directories.
TEST_F(RunCheckpoints, ACheckpointMovedAsideIsPutBack) {
  ASSERT_TRUE(Save(8).ok());
  ASSERT_TRUE(Rename(StepPath(folder_, 8), folder_ / "step-00000008.incomplete.old").ok());
  ASSERT_TRUE(CreateDirectories(folder_ / "step-00000008.incomplete" / "w").ok());
  ASSERT_TRUE(RemoveLeftovers(folder_).ok());
  EXPECT_THAT(*ListDirectory(folder_), ElementsAre("step-00000008"));
  EXPECT_EQ(Newest(), 8);
}

TEST_F(RunCheckpoints, ASaveUnderWayElsewhereIsLeftAlone) {
  const auto writing = AtomicDirectory::Create(StepPath(folder_, 12), true);
  ASSERT_TRUE(writing.ok());
  ASSERT_TRUE(RemoveLeftovers(folder_).ok());
  EXPECT_THAT(*ListDirectory(folder_), ElementsAre("step-00000012.incomplete"));
}

TEST_F(RunCheckpoints, PruneKeepsTheNewestCompleteOnes) {
  for (const int64_t step : {10, 20, 30, 40, 50, 60}) ASSERT_TRUE(Save(step).ok());
  ASSERT_TRUE(RemoveFile(StepPath(folder_, 60) / kManifestName).ok());
  EXPECT_THAT(*PruneSteps(folder_, {}), IsEmpty());
  EXPECT_THAT(*PruneSteps(folder_, {.last = 2, .every = 30}), ElementsAre(10, 20));
  EXPECT_THAT(*ListSteps(folder_), ElementsAre(30, 40, 50, 60));
  EXPECT_EQ(Newest(), 50);
}

// Weights with both moments, as a trainer saves them: 50 kills spread over saves in a row.
TEST_F(RunCheckpoints, KilledAtAnyInstantTheNewestIsComplete) {
  int killed_inside = 0;
  for (int round = 0; round < 50; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      if (!RemoveLeftovers(folder_).ok()) _exit(1);
      for (int64_t step = std::max<int64_t>(Newest(), 0) + 1;; ++step)
        if (!Save(step).ok() || !PruneSteps(folder_, {.last = 2}).ok()) _exit(1);
    }
    usleep(static_cast<useconds_t>(1'000 + 400 * round));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "a save failed";
    if (!std::filesystem::exists(folder_)) continue;
    const int64_t newest = Newest();
    const std::vector<std::string> names = *ListDirectory(folder_);
    for (const std::string& name : names)
      killed_inside += name.ends_with(kIncompleteSuffix) ? 1 : 0;
    if (newest >= 0) {
      const auto report = VerifyCheckpoint(StepPath(folder_, newest));
      ASSERT_TRUE(report.ok() && report->holds());
      ASSERT_EQ(report->step, newest);
    }
  }
  EXPECT_GE(killed_inside, 3) << "the machine is too fast for this test's delays";
  EXPECT_GE(Newest(), 1);
  ASSERT_TRUE(RemoveLeftovers(folder_).ok());
  EXPECT_EQ(ListDirectory(folder_)->size(), ListSteps(folder_)->size());
}

}  // namespace
}  // namespace ulmus::checkpoint
