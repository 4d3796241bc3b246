#include "data/document_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;
using Ints = std::vector<int64_t>;

void WriteGzip(const Path& path, std::string_view text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

Ints EndsOf(const Ints& tokens, const DocumentRule& rule) {
  const TempDir dir;
  const auto files = OpenOrDie({{WriteTokens<uint32_t>(dir.path() / "a.npy", tokens)}});
  const auto ends = FindDocumentEnds(*files, 0, rule);
  CHECK(ends.ok(), "{}", ends.status().message());
  return *ends;
}

TEST(DocumentEnds, AreAfterEveryEos) {
  EXPECT_EQ(EndsOf({5, 9, 9, 6, 7, 9, 8}, {.eos = 9}), (Ints{2, 3, 6}));
  EXPECT_EQ(EndsOf({5, 6}, {.eos = 9}), Ints{});
  EXPECT_EQ(EndsOf({}, {.eos = 9}), Ints{});
}

TEST(DocumentEnds, NeedABosWhereThereIsOne) {
  EXPECT_EQ(EndsOf({1, 5, 9, 6, 9, 1, 7, 9}, {.eos = 9, .bos = 1}), (Ints{5, 8}));
}

TEST(DocumentEnds, AreFoundAcrossChunks) {
  const int64_t chunk = 1 << 16;
  Ints tokens(static_cast<size_t>(2 * chunk + 5), 3);
  Ints expected;
  for (int64_t at : {int64_t{0}, chunk - 1, chunk, 2 * chunk - 1}) {
    tokens[static_cast<size_t>(at)] = 9;
    expected.push_back(at + 1);
  }
  EXPECT_EQ(EndsOf(tokens, {.eos = 9}), expected);
  tokens[static_cast<size_t>(chunk)] = 1;  // the BOS of an EOS in the chunk before
  EXPECT_EQ(EndsOf(tokens, {.eos = 9, .bos = 1}), (Ints{chunk}));
}

TEST(Sidecar, IsReadInsteadOfTheTokens) {
  const TempDir dir;
  const Path tokens = WriteTokens<uint32_t>(dir.path() / "a.npy", {5, 9, 9, 6, 7, 9, 8});
  WriteGzip(dir.path() / "a.csv.gz", "0,2,doc-1,src\r\n2,6\n");  // the toolkit joined two documents
  const auto files = OpenOrDie({{tokens}});
  const auto ends = FindDocumentEnds(*files, 0, {.eos = 9});
  ASSERT_TRUE(ends.ok()) << ends.status().message();
  EXPECT_EQ(*ends, (Ints{2, 6}));
}

TEST(Sidecar, IsRefusedIfItDoesNotFit) {
  const struct {
    const char* csv;
    const char* message;
  } cases[] = {
      {"0,2\n3,6\n", ":2: holds a document of tokens [3, 6); expected one that starts at 2"},
      {"0,2\n2,2\n", ":2: holds"},
      {"0,8\n", "within the file's 7 tokens"},
      {"0;2\n", ":1: is not"},
      {"0,2x\n", ":1: is not"},
      {"start,end\n0,2\n", ":1: is not"},
      {"-1,2\n", "expected one that starts at 0"},
      {"0,99999999999999999999\n", ":1: is not"},
      {"0,4\n", "document 0 ends at token 4, but the last token there is 6"},
  };
  for (const auto& c : cases) {
    const TempDir dir;
    const Path tokens = WriteTokens<uint32_t>(dir.path() / "a.npy", {5, 9, 9, 6, 7, 9, 8});
    WriteGzip(dir.path() / "a.csv.gz", c.csv);
    const auto files = OpenOrDie({{tokens}});
    const auto ends = FindDocumentEnds(*files, 0, {.eos = 9});
    ASSERT_FALSE(ends.ok()) << c.csv;
    EXPECT_EQ(ends.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(ends.status().message(), HasSubstr(c.message));
    EXPECT_THAT(ends.status().message(), HasSubstr("a.csv.gz"));
  }
}

TEST(Sidecar, IsNotBlamedForAnotherEos) {
  const TempDir dir;
  const Path tokens = WriteTokens<uint32_t>(dir.path() / "a.npy", {5, 9, 6, 7, 9, 8, 8, 9});
  WriteGzip(dir.path() / "a.csv.gz", "0,2\n2,5\n5,8\n");
  const auto files = OpenOrDie({{tokens}});
  const Status status = FindDocumentEnds(*files, 0, {.eos = 8}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("all 3 documents looked at end with token 9"));
  EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("remove")));
}

TEST(Sidecar, IsRefusedIfItIsCut) {
  const TempDir dir;
  std::string csv;
  for (int i = 0; i < 5000; ++i) csv += fmt::format("{},{}\n", 2 * i, 2 * i + 2);
  WriteGzip(dir.path() / "a.csv.gz", csv);
  EXPECT_EQ(ReadSidecar(dir.path() / "a.csv.gz", 10000)->size(), 5000);
  std::string bytes = *ReadFile(dir.path() / "a.csv.gz");
  ASSERT_TRUE(WriteFileAtomic(dir.path() / "b.csv.gz", bytes.substr(0, bytes.size() / 2)).ok());
  EXPECT_EQ(ReadSidecar(dir.path() / "b.csv.gz", 10000).status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(ParseSidecar(std::string(2 << 20, '1'), 5, "x").status().message(),
              HasSubstr("longer than"));
}

}  // namespace
}  // namespace ulmus::data
