#include "data/permutation_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "data/permutation.h"
#include "data/permutation_build.h"
#include "data/permutation_store.h"

namespace ulmus::data {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Entries = std::vector<int64_t>;

// Larger than one block of checksums, and no multiple of it.
constexpr PermutationId kId = {.seed = 34522, .size = 50'001};

Entries ReadAll(const PermutationFile& file) {
  Entries entries(static_cast<size_t>(file.id().size));
  const Status status = file.Read(0, entries);
  EXPECT_TRUE(status.ok()) << status.message();
  return entries;
}

void FlipByte(const Path& path, int64_t offset) {
  std::string text = *ReadFile(path);
  text[static_cast<size_t>(offset)] = static_cast<char>(text[static_cast<size_t>(offset)] ^ 0x40);
  ASSERT_TRUE(WriteFileAtomic(path, text).ok());
}

TEST(BuildPermutation, SameEntriesForAnyNumberOfBands) {
  const TempDir dir;
  const Entries expected = MakePermutation<int64_t>(kId.seed, kId.size);
  for (const int64_t band_entries : {7'001, 25'000, 25'001, 50'000, 50'001, 1'000'000}) {
    const Path path = dir.path() / std::to_string(band_entries);
    ASSERT_TRUE(BuildPermutation(kId, path, {.memory_bytes = band_entries * 4}).ok());
    const auto file = PermutationFile::Open(path, kId);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(ReadAll(*file), expected) << band_entries;
  }
  EXPECT_THAT(*ListDirectory(dir.path()), SizeIs(6)) << "scratch is left";
}

TEST(BuildPermutation, BandsOfOneEntry) {
  const TempDir dir;
  for (const int64_t size : {1, 2, 3, 17}) {
    const PermutationId id = {.seed = 5, .size = size};
    ASSERT_TRUE(BuildPermutation(id, dir.path() / "p", {.memory_bytes = 1}).ok());
    EXPECT_EQ(ReadAll(*PermutationFile::Open(dir.path() / "p", id)),
              MakePermutation<int64_t>(5, size));
  }
}

TEST(PermutationFile, BeginsWithTheEntriesAsRawIntegers) {
  const TempDir dir;
  ASSERT_TRUE(BuildPermutation(kId, dir.path() / "p").ok());
  const std::string text = *ReadFile(dir.path() / "p");
  std::vector<uint32_t> raw(static_cast<size_t>(kId.size));
  std::memcpy(raw.data(), text.data(), raw.size() * 4);
  EXPECT_EQ(raw, MakePermutation<uint32_t>(kId.seed, kId.size));
}

TEST(PermutationFile, DamageIsFoundAtItsPlace) {
  const TempDir dir;
  const Path path = dir.path() / "p";
  ASSERT_TRUE(BuildPermutation(kId, path).ok());
  FlipByte(path, 3 * kPermutationBlockBytes);
  const auto file = PermutationFile::Open(path, kId);
  ASSERT_TRUE(file.ok());
  Entries one(1);
  EXPECT_TRUE(file->Read(0, one).ok());
  const Status damaged = file->Read(kId.size - 1, one);
  EXPECT_EQ(damaged.code(), StatusCode::kDataLoss);
  EXPECT_THAT(damaged.message(), HasSubstr("bytes 196608 to 200004 are damaged"));
  EXPECT_EQ(file->Verify().code(), StatusCode::kDataLoss);
}

TEST(PermutationFile, RefusesCutDamagedAndOtherFiles) {
  const TempDir dir;
  const Path path = dir.path() / "p";
  ASSERT_TRUE(BuildPermutation(kId, path).ok());
  const std::string good = *ReadFile(path);
  const auto open_error = [&](const std::string& text, const PermutationId& id) {
    EXPECT_TRUE(WriteFileAtomic(path, text).ok());
    const auto file = PermutationFile::Open(path, id);
    EXPECT_EQ(file.status().code(), StatusCode::kDataLoss);
    return file.status().message();
  };
  EXPECT_THAT(open_error(good.substr(0, good.size() - 1), kId), HasSubstr("bytes, expected"));
  EXPECT_THAT(open_error(good.substr(0, good.size() / 2), kId), HasSubstr("bytes, expected"));
  EXPECT_THAT(open_error("", kId), HasSubstr("0 bytes"));
  for (const size_t from_end : {1, 20, 64, 65, 90}) {
    std::string text = good;
    text[text.size() - from_end] ^= 1;
    EXPECT_THAT(open_error(text, kId), HasSubstr("damaged in its last")) << from_end;
  }
  EXPECT_THAT(open_error(good, {.seed = 1, .size = kId.size}), HasSubstr("seed 34522"));
  EXPECT_EQ(PermutationFile::Open(dir.path() / "none", kId).status().code(), StatusCode::kNotFound);
}

TEST(PermutationFile, ForeignFilesAreKnownByTheirLastEntries) {
  const TempDir dir;
  const Path path = dir.path() / "global_indices_dataset_size50001_epoch1_seed34521_v1.npy";
  const std::vector<uint32_t> raw = MakePermutation<uint32_t>(kId.seed, kId.size);
  ASSERT_TRUE(WriteFileAtomic(path, std::as_bytes(std::span(raw))).ok());
  const auto file = PermutationFile::OpenForeign(path, kId);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(ReadAll(*file), Entries(raw.begin(), raw.end()));
  EXPECT_THAT(
      PermutationFile::OpenForeign(path, {.seed = 34523, .size = kId.size}).status().message(),
      HasSubstr("another seed, epoch or dataset"));
  EXPECT_THAT(PermutationFile::OpenForeign(path, {.seed = kId.seed, .size = kId.size + 1})
                  .status()
                  .message(),
              HasSubstr("expected 200008 for 50002 entries"));
}

PermutationStoreOptions SmallStore(const TempDir& dir) {
  return {.cache_dir = dir.path() / "cache", .memory_bytes = 40'000, .max_in_memory = 100};
}

TEST(PermutationStore, FileAndMemoryGiveTheSame) {
  const TempDir dir;
  PermutationStore files(SmallStore(dir));
  PermutationStore memory({.cache_dir = dir.path() / "none"});
  Entries a(1000), b(1000);
  ASSERT_TRUE(files.Read(kId, 12'345, a).ok());
  ASSERT_TRUE(memory.Read(kId, 12'345, b).ok());
  EXPECT_EQ(a, b);
  EXPECT_FALSE(*PathExists(dir.path() / "none"));
  EXPECT_TRUE(*PathExists(dir.path() / "cache" / "numpy-pcg64-n50001-seed34522.perm"));
}

TEST(PermutationStore, BuildsADamagedFileAgain) {
  const TempDir dir;
  const Path path = dir.path() / "cache" / PermutationFileName(kId);
  const Entries expected = MakePermutation<int64_t>(kId.seed, kId.size);
  Entries entries(static_cast<size_t>(kId.size));
  ASSERT_TRUE(PermutationStore(SmallStore(dir)).Prepare(kId).ok());
  for (const int64_t offset : {int64_t{70'000}, *FileSizeBytes(path) - 1}) {
    FlipByte(path, offset);
    PermutationStore store(SmallStore(dir));
    ASSERT_TRUE(store.Read(kId, 0, entries).ok());
    EXPECT_EQ(entries, expected);
    EXPECT_TRUE(PermutationFile::Open(path, kId)->Verify().ok());
  }
}

TEST(PermutationStore, ManyBuildersMakeOneFile) {
  const TempDir dir;
  Entries first(100);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&dir] {
        PermutationStore store(
            SmallStore(dir));  // as processes would: nothing shared but the directory
        EXPECT_TRUE(store.Prepare(kId).ok());
      });
    }
  }
  EXPECT_THAT(*ListDirectory(dir.path() / "cache"), SizeIs(2)) << "the file and its lock";
}

TEST(PermutationStore, RemovesWhatAKilledBuilderLeft) {
  const TempDir dir;
  const Path cache = dir.path() / "cache";
  ASSERT_TRUE(CreateDirectories(cache).ok());
  ASSERT_TRUE(WriteFileAtomic(cache / (PermutationFileName(kId) + ".tmp-1-0"), "half").ok());
  ASSERT_TRUE(PermutationStore(SmallStore(dir)).Prepare(kId).ok());
  EXPECT_THAT(*ListDirectory(cache), SizeIs(2));
}

TEST(PermutationStore, UsesAFileOfOlmoCore) {
  const TempDir dir;
  PermutationStoreOptions options = SmallStore(dir);
  options.foreign_file = dir.path() / "global_indices.npy";
  const std::vector<uint32_t> raw = MakePermutation<uint32_t>(kId.seed, kId.size);
  ASSERT_TRUE(WriteFileAtomic(options.foreign_file, std::as_bytes(std::span(raw))).ok());
  Entries entries(static_cast<size_t>(kId.size));
  ASSERT_TRUE(PermutationStore(options).Read(kId, 0, entries).ok());
  EXPECT_EQ(entries, Entries(raw.begin(), raw.end()));
  EXPECT_FALSE(*PathExists(options.cache_dir));
}

TEST(PermutationStore, NamesADirectoryThatCannotBeWritten) {
  PermutationStore store({.cache_dir = "/proc/ulmus", .max_in_memory = 1});
  EXPECT_THAT(store.Prepare(kId).message(), HasSubstr("/proc/ulmus"));
}

TEST(BuildPermutation, NamesTheDiskThatIsTooSmall) {
  const TempDir dir;
  const Status status = BuildPermutation({.seed = 1, .size = int64_t{1} << 52}, dir.path() / "p",
                                         {.memory_bytes = int64_t{1} << 20});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("data.cache_dir"));
}

}  // namespace
}  // namespace ulmus::data
