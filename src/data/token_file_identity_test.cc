#include "data/token_file_identity.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/hash.h"
#include "data/manifest.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;

TEST(FileIdentity, KnowsAReplacedFileOfTheSameSize) {
  const TempDir dir;
  const Path a = WriteTokens<uint32_t>(dir.path() / "a", Counting(0, 1000));
  const Path b = WriteTokens<uint32_t>(dir.path() / "b", Counting(0, 100'000));
  const auto before = IdentifyFiles(*OpenOrDie({{a}, {b}}));
  ASSERT_TRUE(before.ok());
  EXPECT_TRUE(CompareIdentities(*before, *IdentifyFiles(*OpenOrDie({{a}, {b}}))).ok());
  WriteTokens<uint32_t>(b, Counting(1, 100'000));
  const Status status = CompareIdentities(*before, *IdentifyFiles(*OpenOrDie({{a}, {b}})));
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("b: its content is not what the run began with"));
}

// A file up to 1 MiB is hashed as a whole; of a larger one both ends and the middle are seen.
TEST(FileIdentity, SeesAnyByteOfASmallFileAndTheSamplesOfALargeOne) {
  const TempDir dir;
  const Path path = dir.path() / "a";
  struct Case {
    size_t size;
    std::vector<size_t> seen;
  };
  const size_t large = 40 << 20;
  for (const Case& c : {Case{1 << 20, {0, 70'000, 345'678, (1 << 20) - 1}},
                        Case{large, {0, large / 4, large / 2, large * 7 / 16, large - 1}}}) {
    std::string bytes(c.size, 'x');
    ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
    const FileIdentity before = *IdentifyFile(path);
    for (const size_t at : c.seen) {
      const FileDescriptor fd(open(path.c_str(), O_WRONLY));
      ASSERT_EQ(pwrite(fd.get(), "y", 1, static_cast<off_t>(at)), 1);
      EXPECT_NE(*IdentifyFile(path), before) << at;
      ASSERT_EQ(pwrite(fd.get(), "x", 1, static_cast<off_t>(at)), 1);
      EXPECT_EQ(*IdentifyFile(path), before);
    }
  }
}

TEST(FileIdentity, KnowsChangesOfSizeNameAndCount) {
  const std::vector<FileIdentity> saved = {{"a", 4, 1}, {"b", 8, 2}};
  const auto message = [&](const std::vector<FileIdentity>& now) {
    return CompareIdentities(saved, now).message();
  };
  EXPECT_THAT(message({{"a", 4, 1}, {"b", 9, 2}}), HasSubstr("b: 9 bytes, the run began with 8"));
  EXPECT_THAT(message({{"b", 8, 2}, {"a", 4, 1}}), HasSubstr("file 0 of the dataset is b"));
  EXPECT_THAT(message({{"a", 4, 1}}), HasSubstr("1 files, the run began with 2"));
}

TEST(FileIdentity, ReadsWhatItPrints) {
  const std::vector<FileIdentity> saved = {{"a", 4, 1}, {"b\"", int64_t{1} << 40, ~uint64_t{0}}};
  EXPECT_EQ(*ParseIdentities(PrintIdentities(saved), "x"), saved);
  for (const char* damaged :
       {"", "{}", "[]", R"({"files": [{"name": "a"}]})", R"({"files": 1})",
        R"({"files": [{"name": "a", "size_bytes": 1, "sample_hash": "-00000000000001"}]})"})
    EXPECT_EQ(ParseIdentities(damaged, "x").status().code(), StatusCode::kDataLoss) << damaged;
}

// B18 of the public cases: a file cut by a byte, a token, a half; one byte flipped.
TEST(CheckAgainstManifest, NamesTheDamagedFile) {
  const TempDir dir;
  const Path path = WriteTokens<uint32_t>(dir.path() / "t-0.npy", Counting(0, 1000));
  const std::string bytes = *ReadFile(path);
  Manifest manifest;
  manifest.vocab_size = 100278;
  manifest.eos_id = 100257;
  manifest.tokens = 1000;
  manifest.documents = 1;
  manifest.files.push_back({.part = {"t-0.npy", 4000, Sha256Hex(bytes)},
                            .tokens = 1000,
                            .documents = 1,
                            .sidecar = std::nullopt});
  manifest.files[0].part.sample_hash = IdentifyFile(path)->sample_hash;
  const Path manifest_path = dir.path() / "t.manifest.json";
  ASSERT_TRUE(WriteManifest(manifest_path, manifest).ok());
  EXPECT_TRUE(CheckAgainstManifest(manifest_path, ManifestCheck::kSamples).ok());
  EXPECT_TRUE(CheckAgainstManifest(manifest_path, ManifestCheck::kHashes).ok());
  for (size_t size : {size_t{3999}, size_t{3996}, size_t{2000}, size_t{0}}) {
    ASSERT_TRUE(WriteFileAtomic(path, bytes.substr(0, size)).ok());
    const Status status = CheckAgainstManifest(manifest_path, ManifestCheck::kSamples);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("t-0.npy: {} bytes, but", size)));
    EXPECT_THAT(status.message(), HasSubstr("says 4000"));
  }
  std::string flipped = bytes;
  flipped[1234] ^= 1;
  ASSERT_TRUE(WriteFileAtomic(path, flipped).ok());
  const Status sampled = CheckAgainstManifest(manifest_path, ManifestCheck::kSamples);
  EXPECT_EQ(sampled.code(), StatusCode::kDataLoss);
  EXPECT_THAT(sampled.message(), HasSubstr("t-0.npy: sample hash"));
  EXPECT_THAT(sampled.message(), HasSubstr("restore it, or"));
  EXPECT_THAT(CheckAgainstManifest(manifest_path, ManifestCheck::kHashes).message(),
              HasSubstr("t-0.npy: SHA-256"));
  ASSERT_TRUE(RemoveFile(path).ok());
  const Status missing = CheckAgainstManifest(manifest_path, ManifestCheck::kSamples);
  EXPECT_EQ(missing.code(), StatusCode::kDataLoss);
  EXPECT_THAT(missing.message(), HasSubstr("t-0.npy: missing, but "));
}

TEST(CheckAgainstManifest, ReadsOneWithoutSampleHashesAndSaysSo) {
  const TempDir dir;
  const Path path = WriteTokens<uint32_t>(dir.path() / "t-0.npy", Counting(0, 1000));
  Manifest manifest;
  manifest.vocab_size = 100278;
  manifest.tokens = 1000;
  manifest.documents = 1;
  manifest.files.push_back({.part = {"t-0.npy", 4000, Sha256Hex(*ReadFile(path))},
                            .tokens = 1000,
                            .documents = 1,
                            .sidecar = std::nullopt});
  const Path manifest_path = dir.path() / "t.manifest.json";
  ASSERT_TRUE(WriteManifest(manifest_path, manifest).ok());
  testing::internal::CaptureStderr();
  EXPECT_TRUE(CheckAgainstManifest(manifest_path, ManifestCheck::kSamples).ok());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("t.manifest.json: has no sample hashes"));
}

}  // namespace
}  // namespace ulmus::data
