#include "metrics/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/check.h"

namespace ulmus::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Another process that holds the run until it is killed.
class Holder {
 public:
  explicit Holder(const Path& root) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    child_ = fork();
    if (child_ == 0) {
      const Result<RunDirectory> run = RunDirectory::Open(root);
      const char held = run.ok() ? 'y' : 'n';
      if (write(ready[1], &held, 1) != 1) _exit(1);
      pause();
      _exit(0);
    }
    char held = 0;
    CHECK(read(ready[0], &held, 1) == 1);
    CHECK(held == 'y');
    close(ready[0]);
    close(ready[1]);
  }
  ~Holder() {
    if (child_ != 0) Kill();
  }
  void Kill() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  pid_t pid() const { return child_; }

 private:
  pid_t child_ = 0;
};

TEST(RunDirectory, IsMadeWithItsFolders) {
  const TempDir folder;
  const Path root = folder.path() / "runs" / "demo";
  const Result<RunDirectory> run = RunDirectory::Open(root);
  ASSERT_TRUE(run.ok()) << run.error().message();
  EXPECT_THAT(*ListDirectory(root), ElementsAre("LOCK", "checkpoints", "evals"));
  EXPECT_EQ(run->paths().metrics(), root / "metrics.jsonl");
}

TEST(RunDirectory, SecondWriterIsRefusedWithTheNameOfTheFirst) {
  const TempDir folder;
  const Holder holder(folder.path());
  const Result<RunDirectory> second = RunDirectory::Open(folder.path());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.error().message(),
              HasSubstr(fmt::format("run is in use by process {} on ", holder.pid())));
  EXPECT_THAT(second.error().message(), HasSubstr(" since 20"));
  EXPECT_THAT(second.error().message(), HasSubstr("stop it or choose another --run-dir"));
}

TEST(RunDirectory, SecondWriterInOneProcessIsRefused) {
  const TempDir folder;
  const Result<RunDirectory> first = RunDirectory::Open(folder.path());
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(RunDirectory::Open(folder.path()).ok());
}

TEST(RunDirectory, LockOfAKilledProcessIsTakenOver) {
  const TempDir folder;
  Holder holder(folder.path());
  holder.Kill();
  EXPECT_TRUE(RunDirectory::Open(folder.path()).ok());
}

TEST(RunDirectory, OpeningTouchesNothingThatIsThere) {
  const TempDir folder;
  const RunPaths paths{folder.path()};
  ASSERT_TRUE(RunDirectory::Open(folder.path()).ok());
  for (const Path& path : {paths.recipe(), paths.metrics(), paths.log()})
    ASSERT_EQ(WriteFileAtomic(path, "kept"), Status());
  ASSERT_TRUE(RunDirectory::Open(folder.path()).ok());
  EXPECT_THAT(*ListDirectory(folder.path()), ElementsAre("LOCK", "checkpoints", "evals", "log.txt",
                                                         "metrics.jsonl", "recipe.toml"));
  for (const Path& path : {paths.recipe(), paths.metrics(), paths.log()})
    EXPECT_EQ(*ReadFile(path), "kept");
  EXPECT_EQ(*ReadFile(paths.lock()), "") << "nobody holds the run any more";
}

}  // namespace
}  // namespace ulmus::metrics
