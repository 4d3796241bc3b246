#include "data/fixed_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "base/hash.h"
#include "data/instance_source_conformance.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;
using Ints = std::vector<int32_t>;

constexpr TokenizerIds kIds = {.vocab_size = 1000, .eos = 9, .pad = 0};

std::unique_ptr<InstanceSource> MakeOrDie(std::vector<TokenFileSpec> specs,
                                          const FixedLengthOptions& options) {
  auto source = MakeFixedLength(OpenOrDie(std::move(specs)), options);
  CHECK(source.ok(), "{}", source.status().message());
  return std::move(*source);
}

TEST(FixedLength, Conforms) {
  const TempDir dir;
  const Path mask = WriteTokens<uint8_t>(dir.path() / "m", {1, 0, 1, 1, 0, 1, 1, 1, 1});
  const std::vector<TokenFileSpec> specs = {
      {.path = WriteTokens<uint32_t>(dir.path() / "a", {5, 9, 6, 7, 9, 8, 9, 9, 1}),
       .label_mask = mask},
      {WriteTokens<uint32_t>(dir.path() / "b", {5, 6})},  // shorter than an instance
      {WriteTokens<uint32_t>(dir.path() / "c", Counting(1, 8)), "c"}};
  const FixedLengthOptions options = {.sequence_length = 4, .ids = kIds};
  ExpectConforms(*MakeOrDie(specs, options), *MakeOrDie(specs, options));
}

// B14 of the public cases: files whose ends fall at, and one off, an instance's end.
TEST(FixedLength, DropsTheRestOfEachFile) {
  const TempDir dir;
  const auto source = MakeOrDie({{WriteTokens<uint32_t>(dir.path() / "a", Counting(100, 8))},
                                 {WriteTokens<uint32_t>(dir.path() / "b", Counting(200, 9))},
                                 {WriteTokens<uint32_t>(dir.path() / "c", Counting(300, 11))},
                                 {WriteTokens<uint32_t>(dir.path() / "d", Counting(400, 4))}},
                                {.sequence_length = 4, .ids = kIds});
  ASSERT_EQ(source->num_instances(), 7);
  Ints firsts;
  for (int64_t i = 0; i < 7; ++i) firsts.push_back(ReadInstance(*source, i).tokens[0]);
  EXPECT_EQ(firsts, (Ints{100, 104, 200, 204, 300, 304, 400}));
  EXPECT_EQ(source->Describe(3)->ranges, (std::vector<TokenRange>{{dir.path() / "b", 4, 4}}));
}

TEST(FixedLength, KeepsTheDataWhenTheSequenceGrows) {
  const TempDir dir;
  const std::vector<TokenFileSpec> specs = {
      {WriteTokens<uint32_t>(dir.path() / "a", Counting(100, 15))},
      {WriteTokens<uint32_t>(dir.path() / "b", Counting(200, 8))}};
  const auto tokens = [&](int64_t length) {
    const auto source =
        MakeOrDie(specs, {.sequence_length = length, .max_target_sequence_length = 8, .ids = kIds});
    EXPECT_EQ(source->instances_per_chunk(), 8 / length);
    Ints all;
    for (int64_t i = 0; i < source->num_instances(); ++i) {
      const Ints instance = ReadInstance(*source, i).tokens;
      all.insert(all.end(), instance.begin(), instance.end());
    }
    return all;
  };
  EXPECT_EQ(tokens(2).size(), 16);  // 7 tokens of the first file are no multiple of 8
  EXPECT_EQ(tokens(2), tokens(4));
  EXPECT_EQ(tokens(2), tokens(8));
}

TEST(FixedLength, RefusesWhatGivesNoInstance) {
  const TempDir dir;
  const Path empty = WriteTokens<uint32_t>(dir.path() / "empty", {});
  const Path three = WriteTokens<uint32_t>(dir.path() / "three", {1, 2, 3});
  const auto source =
      MakeFixedLength(OpenOrDie({{empty}, {three}}), {.sequence_length = 4, .ids = kIds});
  EXPECT_EQ(source.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(source.status().message(), HasSubstr("2 files hold 3 tokens in all, but none has 4"));
  EXPECT_FALSE(MakeFixedLength(OpenOrDie({{three}}), {.sequence_length = 0}).ok());
  EXPECT_THAT(
      MakeFixedLength(OpenOrDie({{three}}), {.sequence_length = 2, .max_target_sequence_length = 3})
          .status()
          .message(),
      HasSubstr("multiple of sequence_length 2"));
}

// The text that OLMo-core 2.x hashes, written out.
TEST(FixedLength, HasOlmoCoresFingerprint) {
  const TempDir dir;
  const auto source =
      MakeOrDie({{WriteTokens<uint32_t>(dir.path() / "part-0.npy", Counting(1, 8))},
                 {WriteTokens<uint32_t>(dir.path() / "part-1.npy", Counting(1, 4))}},
                {.sequence_length = 4});
  EXPECT_EQ(source->fingerprint(),
            Sha256Hex("class=NumpyFSLDatasetvocab_size=100278,pad_token_id=100277,"
                      "eos_token_id=100257,dtype=<class 'numpy.uint32'>,"
                      "max_target_sequence_length=None,bos_token_id=None,"
                      "path=part-0.npy,size=32,path=part-1.npy,size=16,"));
  EXPECT_EQ(source->fingerprint_version(), "v2.0");
}

TEST(FixedLength, FingerprintFollowsSizesAndNamesButNotFolders) {
  const TempDir dir;
  const auto fingerprint = [&](const char* folder, const char* name, int64_t count) {
    CHECK(CreateDirectories(dir.path() / folder).ok());
    const Path path = WriteTokens<uint32_t>(dir.path() / folder / name, Counting(1, count));
    return MakeOrDie({{path}}, {.sequence_length = 4, .ids = kIds})->fingerprint();
  };
  EXPECT_EQ(fingerprint("x", "a", 8), fingerprint("y", "a", 8));
  EXPECT_NE(fingerprint("x", "a", 8), fingerprint("x", "b", 8));
  EXPECT_NE(fingerprint("x", "a", 8), fingerprint("x", "a", 9));
}

TEST(FixedLength, CountsBeyond32Bits) {
  EXPECT_EQ(FixedLengthInstances(10'000'000'000'000, {.sequence_length = 8192}), 1'220'703'125);
  EXPECT_EQ(FixedLengthInstances(10'000'000'000'000, {.sequence_length = 1}), 10'000'000'000'000);
}

}  // namespace
}  // namespace ulmus::data
