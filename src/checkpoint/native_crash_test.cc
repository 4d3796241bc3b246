// Saves that are cut off: killed at any instant, out of disk space, damaged afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "checkpoint/native.h"

namespace ulmus::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Three tensors whose every byte is the step's number.
const std::vector<TensorInfo> kTensors = {
    {"a", {DType::kU8, {100}}}, {"b", {DType::kU8, {3, 100'000}}}, {"c", {DType::kF32, {3}}}};

Status Save(const Path& path, int64_t step) {
  const auto writer =
      TRY(NativeWriter::Create(path, kTensors, {.step = step, .overwrite = true, .sync = false}));
  for (const TensorInfo& tensor : kTensors) {
    TRY(writer->Begin(tensor));
    TRY(writer->Append(std::vector<std::byte>(static_cast<size_t>(tensor.type.size_bytes()),
                                              static_cast<std::byte>(step))));
  }
  TRY(writer->SetTrainState("{}"));
  return writer->Commit();
}

// The step of a checkpoint that is complete and all of that step; -1 after a test failure.
int64_t WholeStep(const Path& path) {
  const auto report = VerifyCheckpoint(path);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  if (!report.ok()) return -1;
  EXPECT_TRUE(report->holds()) << DamageText(report->damaged);
  const auto reader = NativeReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status().ToString();
  if (!reader.ok()) return -1;
  std::vector<std::byte> bytes(300'000);
  EXPECT_TRUE((*reader)->Read(1, 0, bytes).ok());
  const std::byte expected = static_cast<std::byte>((*reader)->step());
  EXPECT_TRUE(std::ranges::all_of(bytes, [&](std::byte b) { return b == expected; }));
  return (*reader)->step();
}

TEST(NativeCrash, KilledAtAnyInstantLeavesTheOldOrTheNewCheckpoint) {
  const TempDir folder;
  const Path path = folder.path() / "step-00000001";
  ASSERT_TRUE(Save(path, 0).ok());
  int killed_inside = 0;
  for (int64_t round = 1; round <= 30; ++round) {
    const int64_t before = WholeStep(path);
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (write(ready[1], "x", 1) != 1) _exit(1);
      _exit(Save(path, round).ok() ? 0 : 1);
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    // 0 to 8.7 ms in steps of 0.3: a save takes about 5.
    std::this_thread::sleep_for(std::chrono::microseconds(300 * (round - 1)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    killed_inside += WIFSIGNALED(status) ? 1 : 0;
    const int64_t after = WholeStep(path);
    EXPECT_TRUE(after == before || after == round) << after << " after " << before;
    if (!WIFSIGNALED(status)) {
      EXPECT_EQ(after, round);
    }
  }
  EXPECT_GE(killed_inside, 3) << "the machine is too fast for this test's delays";
  // The next save removes what the killed ones left.
  ASSERT_TRUE(Save(path, 99).ok());
  EXPECT_EQ(WholeStep(path), 99);
  EXPECT_THAT(*ListDirectory(folder.path()), ElementsAre("step-00000001"));
}

TEST(NativeCrash, FullDiskSaysWhatIsNeededAndKeepsTheOldCheckpoint) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  ASSERT_TRUE(Save(path, 1).ok());
  // A limit on the size of files stands in for the disk: both end a write with an error.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 200'000, .rlim_max = 200'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const Status status = Save(path, 2);
    const bool told = status.code() == StatusCode::kResourceExhausted &&
                      status.message().find("needed") != std::string::npos &&
                      status.message().find("free") != std::string::npos;
    _exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(WholeStep(path), 1);
  EXPECT_THAT(*ListDirectory(folder.path()), ElementsAre("c"));
}

TEST(NativeCrash, MoreThanTheDiskHoldsIsRefusedBeforeAnythingIsWritten) {
  const TempDir folder;
  const std::vector<TensorInfo> tensors = {{"t", {DType::kF32, {int64_t{1} << 45}}}};
  const Status status = NativeWriter::Create(folder.path() / "c", tensors).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("bytes needed"));
  EXPECT_THAT(*ListDirectory(folder.path()), IsEmpty());
}

void Flip(const Path& path, size_t at) {
  std::string bytes = *ReadFile(path);
  bytes[at % bytes.size()] = static_cast<char>(bytes[at % bytes.size()] ^ 0x10);
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
}

TEST(NativeCrash, DamageOfAnyFileIsNamed) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  ASSERT_TRUE(Save(path, 1).ok());
  const auto manifest = LoadManifest(LocalReadStore(path));
  ASSERT_TRUE(manifest.ok());
  ASSERT_GE(manifest->files.size(), 9u);
  for (const auto& [key, file] : manifest->files) {
    const std::string whole = *ReadFile(path / key);
    Flip(path / key, Xxh3(key));
    auto report = VerifyCheckpoint(path);
    ASSERT_EQ(report->damaged.size(), 1u) << key;
    EXPECT_EQ(report->damaged[0], (Damage{key, "checksum differs"}));
    ASSERT_TRUE(WriteFileAtomic(path / key, whole.substr(1)).ok());
    report = VerifyCheckpoint(path, {.full = false});
    ASSERT_EQ(report->damaged.size(), 1u) << key;
    EXPECT_EQ(report->damaged[0].file, key);
    EXPECT_EQ(NativeReader::Open(path).status().code(), StatusCode::kDataLoss) << key;
    ASSERT_TRUE(RemoveFile(path / key).ok());
    report = VerifyCheckpoint(path, {.full = false});
    ASSERT_EQ(report->damaged.size(), 1u) << key;
    EXPECT_EQ(report->damaged[0], (Damage{key, "missing"}));
    const Status status = NativeReader::Open(path).status();
    EXPECT_EQ(ExitCodeFor(status), kExitDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(key));
    ASSERT_TRUE(WriteFileAtomic(path / key, whole).ok());
  }
  EXPECT_EQ(WholeStep(path), 1);
  ASSERT_TRUE(WriteFileAtomic(path / "b/c/0/1", "x").ok());
  const auto report = VerifyCheckpoint(path);
  ASSERT_EQ(report->damaged.size(), 1u);
  EXPECT_EQ(report->damaged[0], (Damage{"b/c/0/1", "not in the manifest"}));
}

TEST(NativeCrash, FlippedBitIsSeenWhenTheTensorIsRead) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  ASSERT_TRUE(Save(path, 1).ok());
  Flip(path / "b/c/0/0", 1234);
  const auto reader = NativeReader::Open(path);  // sizes hold
  ASSERT_TRUE(reader.ok());
  std::vector<std::byte> bytes(300'000);
  const Status status = (*reader)->Read(1, 0, bytes);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("b/c/0/0"));
}

TEST(NativeCrash, EveryChangeOfTheManifestIsSeen) {
  Manifest manifest{.step = 12, .files = {}};
  manifest.files["a/zarr.json"] = {.size_bytes = 100, .hash = {.low = 1, .high = 2}};
  manifest.files["a/c/0"] = {.size_bytes = 0, .hash = {.low = ~uint64_t{0}, .high = 0}};
  const std::string text = ManifestText(manifest);
  EXPECT_EQ(*ParseManifest(text), manifest);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(ParseManifest(changed).status().code(), StatusCode::kDataLoss) << changed;
  }
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_EQ(ParseManifest(text.substr(0, size)).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseManifest(text + " ").status().code(), StatusCode::kDataLoss);
}

TEST(NativeCrash, WithoutManifestThereIsNoCheckpoint) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  EXPECT_EQ(NativeReader::Open(path).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(Save(path, 1).ok());
  ASSERT_TRUE(RemoveFile(path / kManifestName).ok());
  EXPECT_FALSE(IsNativeCheckpoint(path));
  const Status status = NativeReader::Open(path).status();
  EXPECT_EQ(ExitCodeFor(status), kExitDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("not finished"));
  EXPECT_FALSE(VerifyCheckpoint(path)->holds());
}

TEST(NativeCrash, LinksOutOfTheCheckpointAreRefused) {
  const TempDir folder;
  const Path path = folder.path() / "c";
  ASSERT_TRUE(Save(path, 1).ok());
  std::filesystem::rename(path / "b", folder.path() / "outside");
  std::filesystem::create_directory_symlink(folder.path() / "outside", path / "b");
  EXPECT_EQ(NativeReader::Open(path).status().code(), StatusCode::kDataLoss);
}

int64_t ResidentBytes() {
  const std::string text = *ReadFile("/proc/self/statm");
  return std::stoll(text.substr(text.find(' '))) * sysconf(_SC_PAGESIZE);
}

// A sanitizer keeps freed memory back on purpose.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kFreedMemoryIsKept = true;
#elif defined(__has_feature)
constexpr bool kFreedMemoryIsKept =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kFreedMemoryIsKept = false;
#endif

TEST(NativeCrash, ManySavesDoNotGrowResidentMemory) {
  if (kFreedMemoryIsKept) GTEST_SKIP() << "not with a sanitizer that keeps freed memory";
  const TempDir folder;
  const Path path = folder.path() / "c";
  for (int64_t step = 0; step < 3; ++step) ASSERT_TRUE(Save(path, step).ok());
  const int64_t before = ResidentBytes();
  for (int64_t step = 0; step < 12; ++step) ASSERT_TRUE(Save(path, step).ok());
  EXPECT_LT(ResidentBytes() - before, 2 << 20);  // one leaked save is 0.3 MB
}

}  // namespace
}  // namespace ulmus::checkpoint
