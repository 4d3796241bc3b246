#include "data/token_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;

TEST(TokenFiles, NamesAllThatAreMissing) {
  const TempDir dir;
  const Path a = WriteTokens<uint32_t>(dir.path() / "a", {1});
  const auto files = TokenFiles::Open({{dir.path() / "x"}, {a}, {dir.path() / "y"}});
  EXPECT_EQ(files.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(files.status().message(), HasSubstr("2 of 3 token files"));
  EXPECT_THAT(files.status().message(), HasSubstr("/x, "));
  EXPECT_THAT(files.status().message(), HasSubstr("/y;"));
}

TEST(TokenFiles, ComparesWithTheExpectedCount) {
  const TempDir dir;
  const Path a = WriteTokens<uint32_t>(dir.path() / "a", {1, 2, 3});
  const auto files = TokenFiles::Open({{.path = a, .expected_tokens = 4}});
  EXPECT_EQ(files.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(files.status().message(), HasSubstr("3 tokens, but 4 are expected"));
}

TEST(TokenFiles, ReadsLabelMasks) {
  const TempDir dir;
  const Path a = WriteTokens<uint32_t>(dir.path() / "a", {1, 2, 3});
  const Path b = WriteTokens<uint32_t>(dir.path() / "b", {1, 2});
  const Path mask = WriteTokens<uint8_t>(dir.path() / "mask", {0, 1, 9});
  const auto files = OpenOrDie({{.path = a, .label_mask = mask}, {b}});
  std::vector<uint8_t> out(2);
  ASSERT_TRUE(files->ReadMask(0, 1, out).ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{1, 1}));
  ASSERT_TRUE(files->ReadMask(0, 0, out).ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{0, 1}));
  ASSERT_TRUE(files->ReadMask(1, 0, out).ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{1, 1}));
  EXPECT_TRUE(files->has_label_masks());
  const auto uneven = TokenFiles::Open({{.path = b, .label_mask = mask}});
  EXPECT_THAT(uneven.status().message(), HasSubstr("label mask of 3 tokens, but"));
}

TEST(TokenFiles, ReadsWithoutAddressSpace) {
  const TempDir dir;
  const Path a = WriteTokens<uint32_t>(dir.path() / "a", Counting(0, 10));
  const auto files = OpenOrDie({{a}, {a}}, {.mapped_limit_bytes = 40});
  for (int64_t i : {0, 1}) {
    std::vector<int32_t> out(2);
    ASSERT_TRUE(files->Read(i, 8, out).ok());
    EXPECT_EQ(out, (std::vector<int32_t>{8, 9}));
  }
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// In a process of its own, so that memory of other tests does not count.
TEST(TokenFiles, MemoryDoesNotGrowWithWhatIsRead) {
  const TempDir dir;
  const Path path = dir.path() / "sparse";
  const FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT, 0644));
  ASSERT_EQ(ftruncate(fd.get(), (int64_t{1} << 32) * 4 + 4096), 0);  // beyond 2^32 tokens
  const pid_t child = fork();
  if (child == 0) {
    constexpr int64_t kLimit = 8 << 20;
    const auto files = OpenOrDie({{path}}, {.resident_limit_bytes = kLimit});
    std::vector<int32_t> tokens(1 << 18);
    const int64_t before = ResidentBytes();
    int64_t most = 0;
    for (int64_t i = 0; i < 64; ++i) {  // 64 MiB from all over the file
      const int64_t first = i * ((int64_t{1} << 32) / 64);
      if (!files->Read(0, first, tokens).ok()) _exit(2);
      most = std::max(most, ResidentBytes() - before);
    }
    _exit(most < 4 * kLimit ? 0 : 1);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0) << "1: more than 32 MiB resident";
}

}  // namespace
}  // namespace ulmus::data
