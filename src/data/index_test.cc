#include "data/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "data/instance_source_conformance.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;
using namespace std::string_literals;

Index Small() {
  Index index{.sequence_length = 4, .tokenizer = "dolma2"};
  index.files = {{.path = "a.npy", .label = "cc", .n_tokens = 9},
                 {.path = "b.npy", .label = "wiki", .n_tokens = 3},
                 {.path = "c.npy", .label = "cc", .n_tokens = 12}};
  CHECK(CompleteIndex(index).ok());
  return index;
}

TEST(Index, CountsAsMaxTextDoes) {
  const Index index = Small();
  EXPECT_EQ(index.total_instances, 5);
  EXPECT_EQ(index.total_tokens, 24);
  EXPECT_EQ(index.files[2].instance_offset, 2);
  EXPECT_EQ(index.files[2].n_instances, 3);
  EXPECT_EQ(index.fingerprint, "sha256:" + Sha256Hex("1\0"
                                                     "4\0uint32\0dolma2\0a.npy\0"
                                                     "9\0b.npy\0"
                                                     "3\0c.npy\0"
                                                     "12\0"s));
}

TEST(Index, ReadsWhatItWrites) {
  const TempDir dir;
  ASSERT_TRUE(WriteIndex(dir.path() / "index.json", Small()).ok());
  const Result<Index> index = ReadIndex(dir.path() / "index.json");
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_EQ(*index, Small());
}

TEST(Index, PassesOverUnknownKeys) {
  std::string json = PrintIndex(Small());
  json.replace(json.find("\"format_version\""), 0,
               R"("x": {"files": [1, {"path": 2}]}, "y": [[]], )");
  json.replace(json.find("\"path\""), 0, R"("z": [{"n_tokens": "no"}], )");
  const Result<Index> index = ParseIndex(json, "i");
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_EQ(*index, Small());
}

std::string Replaced(std::string_view from, std::string_view to) {
  std::string json = PrintIndex(Small());
  const size_t at = json.find(from);
  CHECK(at != std::string::npos, "{}", from);
  return json.replace(at, from.size(), to);
}

TEST(Index, RefusesDamage) {
  const struct {
    std::string json;
    const char* message;
  } cases[] = {
      {"", "not JSON"},
      {"[]", "an array"},
      {"7", "not an object"},
      {"{}", "missing"},
      {PrintIndex(Small()).substr(0, 300), "not JSON from byte"},
      {Replaced("\"n_tokens\": 9", "\"n_tokens\": 8"), "files give 23"},
      {Replaced("\"n_tokens\": 9", "\"n_tokens\": 90"), "n_instances 2"},
      {Replaced("\"n_tokens\": 9", "\"n_tokens\": -9"), "no count"},
      {Replaced("\"n_tokens\": 9", "\"n_tokens\": 9e3"), "a fraction"},
      {Replaced("\"n_tokens\": 9", "\"n_tokens\": 18446744073709551615"), "no count"},
      {Replaced("\"n_tokens\": 9,", ""), "lacks"},
      {Replaced("\"n_tokens\": 9,", "\"n_tokens\": 9, \"n_tokens\": 9,"), "twice"},
      {Replaced("\"label\": \"cc\"", "\"label\": {}"), "an object"},
      {Replaced("\"path\": \"a.npy\"", "\"path\": 3"), "a number"},
      {Replaced("\"total_tokens\": 24", "\"total_tokens\": 25"), "totals of 25"},
      {Replaced("\"instance_offset\": 2", "\"instance_offset\": 3"), "instance_offset 3"},
      {Replaced("uint32", "float32"), "no NumPy integer"},
      {Replaced("a.npy", "x.npy"), "fingerprint"},
  };
  for (const auto& c : cases) {
    const Result<Index> index = ParseIndex(c.json, "index.json");
    ASSERT_FALSE(index.ok()) << c.message;
    EXPECT_EQ(index.status().code(), StatusCode::kDataLoss) << index.status().message();
    EXPECT_THAT(index.status().message(), HasSubstr(c.message));
    EXPECT_THAT(index.status().message(), HasSubstr("index.json"));
  }
  EXPECT_EQ(ParseIndex(Replaced("\"1\"", "\"2\""), "i").status().code(),
            StatusCode::kUnimplemented);
}

TEST(Index, SurvivesDeepNesting) {
  EXPECT_FALSE(ParseIndex(std::string(1 << 20, '['), "i").ok());
  EXPECT_FALSE(ParseIndex("{\"x\": " + std::string(1 << 20, '['), "i").ok());
}

// 200 MB of index: read whole, and refused when its end is missing.
TEST(Index, ReadsALargeOne) {
  Index index{.sequence_length = 4, .tokenizer = "t"};
  const std::string folder(4000, 'd');
  for (int64_t i = 0; i < 52'000; ++i)
    index.files.push_back({.path = fmt::format("{}/{}", folder, i), .label = "cc", .n_tokens = i});
  ASSERT_TRUE(CompleteIndex(index).ok());
  std::string json =
      fmt::format(R"({{"format_version":"1","sequence_length":4,"dtype":"uint32","tokenizer":"t",)"
                  R"("total_instances":{},"total_tokens":{},"fingerprint":"{}","files":[)",
                  index.total_instances, index.total_tokens, index.fingerprint);
  for (const IndexFile& file : index.files)
    json += fmt::format(
        R"({{"path":"{}","label":"cc","n_tokens":{},"n_instances":{},"instance_offset":{}}},)",
        file.path, file.n_tokens, file.n_instances, file.instance_offset);
  json.back() = ']';
  json += '}';
  ASSERT_GT(json.size(), 200'000'000u);
  const Result<Index> read = ParseIndex(json, "large.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_TRUE(*read == index);
  json.resize(10'000'000);
  const Status cut = ParseIndex(json, "large.json").status();
  EXPECT_EQ(cut.code(), StatusCode::kDataLoss);
  EXPECT_THAT(cut.message(), HasSubstr("large.json: not JSON from byte"));
}

TEST(Indexed, Conforms) {
  const TempDir dir;
  WriteTokens<uint32_t>(dir.path() / "a.npy", Counting(1, 9));
  WriteTokens<uint32_t>(dir.path() / "b.npy", Counting(1, 3));
  WriteTokens<uint32_t>(dir.path() / "c.npy", Counting(50, 12));
  const IndexedOptions options = {.base = dir.path()};
  const auto source = MakeIndexed(Small(), options);
  const auto again = MakeIndexed(Small(), options);
  ASSERT_TRUE(source.ok()) << source.status().message();
  ExpectConforms(**source, **again);
  EXPECT_EQ((*source)->fingerprint(), Small().fingerprint);
  EXPECT_EQ((*source)->Describe(2)->ranges[0].file, dir.path() / "c.npy");
  EXPECT_EQ((*source)->Describe(2)->source, "cc");
}

TEST(Indexed, NamesAFileThatIsNotTheOneIndexed) {
  const TempDir dir;
  WriteTokens<uint32_t>(dir.path() / "a.npy", Counting(1, 9));
  WriteTokens<uint32_t>(dir.path() / "b.npy", Counting(1, 2));
  WriteTokens<uint32_t>(dir.path() / "c.npy", Counting(50, 12));
  const auto source = MakeIndexed(Small(), {.base = dir.path()});
  EXPECT_EQ(source.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(source.status().message(), HasSubstr("b.npy: 2 tokens, but 3 are expected"));
  EXPECT_THAT(MakeIndexed(Small(), {.sequence_length = 8}).status().message(),
              HasSubstr("sequence_length 4, the run of 8"));
}

}  // namespace
}  // namespace ulmus::data
