#include "base/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <thread>

namespace ulmus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ReadFile, ReadsAllOrRefusesBeyondTheLimit) {
  const TempDir dir;
  const Path path = dir.path() / "a";
  const std::string text = std::string("x\0y\n", 4) + std::string(5000, 'z');
  ASSERT_EQ(WriteFileAtomic(path, text), Status());
  EXPECT_EQ(*ReadFile(path), text);
  EXPECT_EQ(*ReadFile(path, 5004), text);
  const Status refused = ReadFile(path, 5003).status();
  EXPECT_EQ(refused.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(refused.message(), HasSubstr("5003"));
}

TEST(ReadFile, ReadsFilesThatStateNoSize) {
  EXPECT_THAT(*ReadFile("/proc/self/status"), HasSubstr("Name:"));
}

TEST(ReadFile, NamesPathReasonAndRemedy) {
  const TempDir dir;
  const Status missing = ReadFile(dir.path() / "none").status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr((dir.path() / "none").string() +
                                           ": cannot open: No such file or directory; check"));
  EXPECT_EQ(ReadFile(dir.path()).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReadFile(dir.path() / "none/below").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(std::string("/proc/self/status\0x", 19)).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ErrnoError, MapsToTheCodeThatCallersActOn) {
  const std::pair<int, StatusCode> cases[] = {
      {ENOENT, StatusCode::kNotFound},          {EACCES, StatusCode::kPermissionDenied},
      {EROFS, StatusCode::kPermissionDenied},   {EEXIST, StatusCode::kAlreadyExists},
      {ENOSPC, StatusCode::kResourceExhausted}, {EDQUOT, StatusCode::kResourceExhausted},
      {EMFILE, StatusCode::kResourceExhausted}, {EIO, StatusCode::kDataLoss},
      {ESTALE, StatusCode::kUnavailable},       {ENOTDIR, StatusCode::kFailedPrecondition},
      {EPROTO, StatusCode::kUnknown},
  };
  for (const auto& [error, code] : cases)
    EXPECT_EQ(ErrnoError(error, "f", "read").code(), code) << error;
}

TEST(WriteFileAtomic, ReplacesAndLeavesNoTemporary) {
  const TempDir dir;
  ASSERT_EQ(WriteFileAtomic(dir.path() / "a", "old"), Status());
  ASSERT_EQ(WriteFileAtomic(dir.path() / "a", "new"), Status());
  EXPECT_EQ(*ReadFile(dir.path() / "a"), "new");
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre("a"));
}

TEST(WriteFileAtomic, KeepsTheOldFileWhenSpaceRunsOut) {
  const TempDir dir;
  const Path path = dir.path() / "a";
  ASSERT_EQ(WriteFileAtomic(path, "old"), Status());
  // A file size limit stands in for a full disk: both fail in write().
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Status status = WriteFileAtomic(path, std::string(10000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);

  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("needed 5904 more bytes"));
  EXPECT_THAT(status.message(), HasSubstr(" free)"));
  EXPECT_EQ(*ReadFile(path), "old");
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre("a"));
}

TEST(AtomicFile, VanishesWithoutCommit) {
  const TempDir dir;
  {
    Result<AtomicFile> file = AtomicFile::Create(dir.path() / "a");
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(file->Write("half"), Status());
    EXPECT_FALSE(*PathExists(dir.path() / "a"));
  }
  EXPECT_THAT(*ListDirectory(dir.path()), IsEmpty());
}

TEST(WriteFileAtomic, WritersOfOnePathDoNotMix) {
  const TempDir dir;
  const Path path = dir.path() / "a";
  {
    std::vector<std::jthread> writers;
    for (char c = 'a'; c < 'e'; ++c)
      writers.emplace_back(
          [&path, c] { EXPECT_EQ(WriteFileAtomic(path, std::string(1000, c)), Status()); });
  }
  const std::string text = *ReadFile(path);
  EXPECT_EQ(text, std::string(1000, text[0]));
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre("a"));
}

TEST(MappedFile, ShowsTheBytesAndMayBeEmpty) {
  const TempDir dir;
  ASSERT_EQ(WriteFileAtomic(dir.path() / "a", "abc"), Status());
  ASSERT_EQ(WriteFileAtomic(dir.path() / "empty", ""), Status());
  MappedFile file = *MappedFile::Open(dir.path() / "a");
  EXPECT_EQ(file.size_bytes(), 3);
  EXPECT_EQ(file.bytes()[2], std::byte{'c'});
  const MappedFile moved = std::move(file);
  EXPECT_EQ(moved.bytes()[0], std::byte{'a'});
  EXPECT_EQ(MappedFile::Open(dir.path() / "empty")->size_bytes(), 0);
  EXPECT_TRUE(MappedFile::Open(dir.path() / "empty")->bytes().empty());
  EXPECT_EQ(MappedFile::Open(dir.path() / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::Open(dir.path()).status().code(), StatusCode::kFailedPrecondition);
  ASSERT_EQ(mkfifo((dir.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(dir.path() / "pipe").status().code(), StatusCode::kFailedPrecondition);
}

TEST(ReadAt, IsShortOnlyWhereTheFileEnds) {
  const TempDir dir;
  ASSERT_EQ(WriteFileAtomic(dir.path() / "a", "abcdef"), Status());
  const FileDescriptor fd(open((dir.path() / "a").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<std::byte, 4> out{};
  EXPECT_EQ(*ReadAt(fd.get(), "a", 1, out), 4);
  EXPECT_EQ(out[0], std::byte{'b'});
  EXPECT_EQ(*ReadAt(fd.get(), "a", 4, out), 2);
  EXPECT_EQ(out[1], std::byte{'f'});
  EXPECT_EQ(*ReadAt(fd.get(), "a", 9, out), 0);
  EXPECT_THAT(ReadAt(-1, "a", 0, out, "look into").status().message(),
              HasSubstr("a: cannot look into"));
}

TEST(UserCacheDirectory, FollowsXdgThenHome) {
  const char* home = std::getenv("HOME");
  const std::string saved = home == nullptr ? "" : home;
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(UserCacheDirectory(), "/x/ulmus");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/h", 1);
  EXPECT_EQ(UserCacheDirectory(), "/h/.cache/ulmus");
  unsetenv("HOME");
  EXPECT_EQ(UserCacheDirectory(), "");
  if (home != nullptr) setenv("HOME", saved.c_str(), 1);
}

TEST(MappedFile, OutlivesReplacementOfTheFile) {
  const TempDir dir;
  ASSERT_EQ(WriteFileAtomic(dir.path() / "a", "old"), Status());
  const MappedFile file = *MappedFile::Open(dir.path() / "a");
  ASSERT_EQ(WriteFileAtomic(dir.path() / "a", "n"), Status());
  EXPECT_EQ(file.bytes()[2], std::byte{'d'});
}

TEST(Directories, CreateListRenameRemove) {
  const TempDir dir;
  ASSERT_EQ(CreateDirectories(dir.path() / "x/y"), Status());
  ASSERT_EQ(CreateDirectories(dir.path() / "x/y"), Status());
  for (const char* name : {"b", "a", "B", "a.1"})
    ASSERT_EQ(WriteFileAtomic(dir.path() / "x" / name, name), Status());
  EXPECT_THAT(*ListDirectory(dir.path() / "x"), ElementsAre("B", "a", "a.1", "b", "y"));
  ASSERT_EQ(Rename(dir.path() / "x/b", dir.path() / "x/y/c"), Status());
  EXPECT_EQ(*FileSizeBytes(dir.path() / "x/y/c"), 1);
  EXPECT_EQ(RemoveFile(dir.path() / "x/b").code(), StatusCode::kNotFound);
  ASSERT_EQ(RemoveFile(dir.path() / "x/a"), Status());
  ASSERT_EQ(RemoveTree(dir.path() / "x"), Status());
  ASSERT_EQ(RemoveTree(dir.path() / "x"), Status());
  EXPECT_FALSE(*PathExists(dir.path() / "x"));
  EXPECT_EQ(ListDirectory(dir.path() / "x").status().code(), StatusCode::kNotFound);
  EXPECT_GT(*FreeDiskBytes(dir.path()), 0);
}

TEST(Directories, AFileInTheWayIsNamed) {
  const TempDir dir;
  ASSERT_EQ(WriteFileAtomic(dir.path() / "f", ""), Status());
  const Status status = CreateDirectories(dir.path() / "f/x");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("Not a directory"));
}

TEST(FileLock, RefusesASecondHolderAndNamesTheFirst) {
  const TempDir dir;
  {
    const Result<FileLock> first = FileLock::Acquire(dir.path() / "LOCK");
    ASSERT_TRUE(first.ok());
    const Status second = FileLock::Acquire(dir.path() / "LOCK").status();
    EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(second.message(), HasSubstr(fmt::format("locked by process {}", getpid())));
  }
  EXPECT_TRUE(FileLock::Acquire(dir.path() / "LOCK").ok());
  EXPECT_EQ(*ReadFile(dir.path() / "LOCK"), "");
}

TEST(FileLock, IsFreeAfterItsOwnerWasKilled) {
  const TempDir dir;
  const pid_t child = fork();
  if (child == 0) {
    const Result<FileLock> lock = FileLock::Acquire(dir.path() / "LOCK");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(*ReadFile(dir.path() / "LOCK"), HasSubstr(std::to_string(child)));
  EXPECT_TRUE(FileLock::Acquire(dir.path() / "LOCK").ok());
}

TEST(FileLock, SaysWhenTheNamedOwnerIsGone) {
  const TempDir dir;
  const Result<FileLock> lock = FileLock::Acquire(dir.path() / "LOCK");
  ASSERT_TRUE(lock.ok());
  // A pid beyond pid_max: as if the owner had died and left the lock to a child.
  char host[256] = {};
  ASSERT_EQ(gethostname(host, sizeof host), 0);
  std::FILE* file = std::fopen((dir.path() / "LOCK").c_str(), "w");
  std::fprintf(file, "99999999 %s\n", host);
  std::fclose(file);
  EXPECT_THAT(FileLock::Acquire(dir.path() / "LOCK").status().message(),
              HasSubstr("process 99999999 on"));
  EXPECT_THAT(FileLock::Acquire(dir.path() / "LOCK").status().message(), HasSubstr("is gone"));
}

}  // namespace
}  // namespace ulmus
