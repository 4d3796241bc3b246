#include "data/packed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/hash.h"
#include "data/instance_source_conformance.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;
using Ints = std::vector<int32_t>;

constexpr TokenizerIds kIds = {.vocab_size = 1000, .eos = 9, .pad = 7};

// A document of `length` tokens: id, id, ..., EOS.
void AddDocument(std::vector<int64_t>& tokens, int64_t id, int64_t length) {
  for (int64_t i = 0; i + 1 < length; ++i) tokens.push_back(id);
  tokens.push_back(9);
}

Path WriteDocuments(const Path& path, int64_t first_id, const std::vector<int64_t>& lengths) {
  std::vector<int64_t> tokens;
  for (int64_t length : lengths) AddDocument(tokens, first_id++, length);
  return WriteTokens<uint32_t>(path, tokens);
}

std::unique_ptr<InstanceSource> PackOrDie(std::vector<TokenFileSpec> specs, PackedOptions options) {
  options.ids = kIds;
  auto source = MakePacked(OpenOrDie(std::move(specs)), options);
  CHECK(source.ok(), "{}", source.status().message());
  return std::move(*source);
}

TEST(Packed, Conforms) {
  const TempDir dir;
  const std::vector<TokenFileSpec> specs = {
      {WriteDocuments(dir.path() / "a", 100, {10, 12, 3, 6, 1, 15, 2, 9, 4, 13, 40})},
      {WriteDocuments(dir.path() / "b", 200, {5, 17, 16})},
      {WriteDocuments(dir.path() / "c", 300, {2})}};
  for (LongDocuments policy : {LongDocuments::kTruncate, LongDocuments::kFragment}) {
    const PackedOptions options = {
        .sequence_length = 16, .long_documents = policy, .source_group_size = 2};
    ExpectConforms(*PackOrDie(specs, options), *PackOrDie(specs, options));
  }
}

TEST(Packed, PutsWholeDocumentsSideBySide) {
  const TempDir dir;
  const Path mask = WriteTokens<uint8_t>(dir.path() / "m", {1, 1, 1, 1, 0, 1, 1, 0});
  const auto source = PackOrDie(
      {{.path = WriteDocuments(dir.path() / "a", 100, {3, 5}), .label = "x", .label_mask = mask}},
      {.sequence_length = 10});
  ASSERT_EQ(source->num_instances(), 1);
  const OwnedInstance instance = ReadInstance(*source, 0);
  EXPECT_EQ(instance.tokens, (Ints{101, 101, 101, 101, 9, 100, 100, 9, 7, 7}));
  EXPECT_EQ(instance.segment_ids, (Ints{1, 1, 1, 1, 1, 2, 2, 2, 0, 0}));
  EXPECT_EQ(instance.positions, (Ints{0, 1, 2, 3, 4, 0, 1, 2, 0, 1}));
  EXPECT_EQ(instance.loss_mask, (std::vector<uint8_t>{1, 0, 1, 1, 0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(source->Describe(0)->ranges,
            (std::vector<TokenRange>{{dir.path() / "a", 3, 5}, {dir.path() / "a", 0, 3}}));
}

// Segments are those that OLMo-core finds again by looking for EOS in the padded instance.
TEST(Packed, SegmentsAreTheDocumentsThatEosMarks) {
  const TempDir dir;
  const auto source =
      PackOrDie({{WriteDocuments(dir.path() / "a", 100, {3, 5, 8, 33, 2, 20, 1, 1, 16})}},
                {.sequence_length = 16, .long_documents = LongDocuments::kFragment});
  for (int64_t i = 0; i < source->num_instances(); ++i) {
    const OwnedInstance instance = ReadInstance(*source, i);
    OwnedInstance found = instance;
    int64_t num_real = 0;
    for (int32_t segment : instance.segment_ids) num_real += segment != kPaddingSegment;
    FillDocuments(instance.tokens, num_real, kIds.documents(), found.row());
    EXPECT_EQ(found.segment_ids, instance.segment_ids);
    EXPECT_EQ(found.positions, instance.positions);
  }
}

std::map<int32_t, int64_t> CountById(const InstanceSource& source) {
  std::map<int32_t, int64_t> counts;
  for (int64_t i = 0; i < source.num_instances(); ++i) {
    const OwnedInstance instance = ReadInstance(source, i);
    for (size_t at = 0; at < instance.tokens.size(); ++at)
      if (instance.segment_ids[at] != kPaddingSegment) ++counts[instance.tokens[at]];
  }
  return counts;
}

// B04 of the public cases: no piece of a document twice in an epoch.
TEST(Packed, UsesEveryTokenOfADocumentOnce) {
  const TempDir dir;
  const std::vector<int64_t> lengths = {10, 40, 3, 16, 17, 1, 15};
  const std::vector<TokenFileSpec> specs = {{WriteDocuments(dir.path() / "a", 100, lengths)}};
  const auto kept = CountById(
      *PackOrDie(specs, {.sequence_length = 16, .long_documents = LongDocuments::kFragment}));
  const auto cut = CountById(*PackOrDie(specs, {.sequence_length = 16}));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto id = static_cast<int32_t>(100 + i);
    const auto count = [id](const auto& counts) { return counts.count(id) ? counts.at(id) : 0; };
    EXPECT_EQ(count(kept), lengths[i] - 1) << id;
    EXPECT_EQ(count(cut), std::min<int64_t>(lengths[i] - 1, 16)) << id;
  }
}

TEST(Packed, NeverPacksAcrossGroups) {
  const TempDir dir;
  std::vector<TokenFileSpec> specs;
  for (int i = 0; i < 5; ++i)
    specs.push_back({WriteDocuments(dir.path() / std::to_string(i), 100 + i, {4})});
  const auto instances = [&](int64_t group) {
    return PackOrDie(specs, {.sequence_length = 16, .source_group_size = group})->num_instances();
  };
  EXPECT_EQ(instances(1), 5);
  EXPECT_EQ(instances(2), 3);
  EXPECT_EQ(instances(8), 2);
}

TEST(Packed, HasOlmoCoresFingerprint) {
  const TempDir dir;
  const std::vector<TokenFileSpec> specs = {{WriteDocuments(dir.path() / "a.npy", 100, {4})}};
  const std::string start =
      "class=NumpyPackedFSLDatasetvocab_size=1000,pad_token_id=7,eos_token_id=9,"
      "dtype=<class 'numpy.uint32'>,long_doc_strategy=truncate,bos_token_id=None,"
      "sequence_length=16,";
  EXPECT_EQ(PackOrDie(specs, {.sequence_length = 16})->fingerprint(),
            Sha256Hex(start + "path=a.npy,size=16,"));
  EXPECT_EQ(PackOrDie(specs, {.sequence_length = 16, .source_group_size = 8})->fingerprint(),
            Sha256Hex(start + "source_group_size=8,path=a.npy,size=16,"));
}

TEST(Packed, RefusesFilesWithoutDocuments) {
  const TempDir dir;
  const auto files = OpenOrDie({{WriteTokens<uint32_t>(dir.path() / "a", {1, 2, 3})}});
  const auto source = MakePacked(files, {.sequence_length = 16, .ids = kIds});
  EXPECT_THAT(source.status().message(), HasSubstr("3 tokens in all, but no EOS (9)"));
  EXPECT_FALSE(MakePacked(files, {.sequence_length = 0}).ok());
  EXPECT_FALSE(MakePacked(files, {.sequence_length = 4, .source_group_size = 0}).ok());
}

TEST(Padded, Conforms) {
  const TempDir dir;
  const std::vector<TokenFileSpec> specs = {
      {WriteDocuments(dir.path() / "a", 100, {10, 12, 3, 40})},
      {WriteDocuments(dir.path() / "b", 200, {16, 1})}};
  const auto source = MakePadded(OpenOrDie(specs), 16, kIds);
  const auto again = MakePadded(OpenOrDie(specs), 16, kIds);
  ASSERT_TRUE(source.ok()) << source.status().message();
  ExpectConforms(**source, **again);
  EXPECT_EQ((*source)->type(), "padded_fsl");
}

TEST(Padded, HoldsOneDocumentPerInstance) {
  const TempDir dir;
  const auto files = OpenOrDie({{WriteDocuments(dir.path() / "a", 100, {2, 6, 3})}});
  const auto source = MakePadded(files, 4, kIds);
  ASSERT_EQ((*source)->num_instances(), 3);
  EXPECT_EQ(ReadInstance(**source, 0).tokens, (Ints{100, 9, 7, 7}));
  EXPECT_EQ(ReadInstance(**source, 1).tokens, (Ints{101, 101, 101, 101}));
  EXPECT_EQ(ReadInstance(**source, 2).loss_mask, (std::vector<uint8_t>{1, 1, 1, 0}));
}

TEST(PermuteFiles, FollowsPythonsShuffle) {
  std::vector<TokenFileSpec> specs;
  for (int i = 0; i < 8; ++i) specs.push_back({Path(std::to_string(i))});
  std::string order;
  for (const TokenFileSpec& spec : PermuteFiles(specs, 123)) order += spec.path.string();
  EXPECT_EQ(order, "14563720");
}

class PackedCache : public ::testing::Test {
 protected:
  PackedCache() {
    WriteDocuments(dir_.path() / "a", 100, {10, 12, 3, 6, 1, 15, 2, 9, 4, 13, 40});
    WriteDocuments(dir_.path() / "b", 200, {5, 17, 16});
  }
  std::unique_ptr<InstanceSource> Pack(int64_t length = 16) const {
    return PackOrDie(
        {{dir_.path() / "a"}, {dir_.path() / "b"}},
        {.sequence_length = length, .cache_dir = dir_.path() / "cache", .cache_from_tokens = 0});
  }
  std::vector<std::string> Kept() const { return *ListDirectory(dir_.path() / "cache"); }
  TempDir dir_;
};

TEST_F(PackedCache, GivesTheSameInstances) {
  const auto plain = PackOrDie({{dir_.path() / "a"}, {dir_.path() / "b"}}, {.sequence_length = 16});
  const auto made = Pack();
  ASSERT_EQ(Kept().size(), 1u);
  const auto kept = Pack();
  ASSERT_EQ(Kept().size(), 1u);
  ExpectConforms(*made, *kept);
  ASSERT_EQ(plain->num_instances(), kept->num_instances());
  for (int64_t i = 0; i < plain->num_instances(); ++i)
    EXPECT_EQ(ReadInstance(*plain, i).tokens, ReadInstance(*kept, i).tokens) << i;
}

TEST_F(PackedCache, IsOfOneDatasetOnly) {
  Pack();
  Pack(20);
  EXPECT_EQ(Kept().size(), 2u);
  WriteDocuments(dir_.path() / "b", 200, {17, 5, 16});
  EXPECT_EQ(Pack()->Describe(0)->ranges[0].num_tokens, 16);
  EXPECT_EQ(Kept().size(), 3u);
}

TEST_F(PackedCache, IsMadeAgainWhenDamaged) {
  const auto whole = Pack();
  const Path path = dir_.path() / "cache" / Kept()[0];
  const std::string bytes = *ReadFile(path);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] ^= 1;
    ASSERT_TRUE(WriteFileAtomic(path, changed).ok());
    ASSERT_EQ(Pack()->num_instances(), whole->num_instances()) << at;
    ASSERT_EQ(*ReadFile(path), bytes) << at;
  }
  for (const size_t size : {size_t{0}, size_t{8}, size_t{112}, bytes.size() - 1}) {
    ASSERT_TRUE(WriteFileAtomic(path, bytes.substr(0, size)).ok());
    ASSERT_EQ(Pack()->num_instances(), whole->num_instances()) << size;
  }
}

TEST_F(PackedCache, GoesOnWithoutIt) {
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "cache", "a file where the folder should be").ok());
  EXPECT_GT(Pack()->num_instances(), 0);
}

}  // namespace
}  // namespace ulmus::data
