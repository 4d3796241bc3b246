// Parquet inputs, on files that another program wrote (testdata/make_parquet.py).
#include "data/tokenize_parquet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "data/testing/testdata.h"
#include "data/tokenize.h"
#include "tokenizer/testing.h"

namespace ulmus::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRows = 100;

Path Golden(const std::string& name) { return TestDataPath("parquet/" + name + ".parquet"); }

// As make_parquet.py writes it.
std::string ExpectedText(int row) {
  std::string text = fmt::format("Row {}: ", row);
  for (int word = 0; word < row * 7 % 40; ++word) text += "word ";
  return row % 5 == 0 ? text + "\u00e9\u5317\u4eac" : text;
}

struct Rows {
  std::vector<std::string> texts;
  Status status;  // of opening or reading
};

// At most `limit` rows.
Rows ReadRows(const Path& path, const RecordOptions& options = {}, const RecordPosition& from = {},
              size_t limit = 1000) {
  Rows rows;
  auto reader = OpenRecords(path, options, from);
  rows.status = reader.status();
  while (rows.status.ok() && rows.texts.size() < limit) {
    Record record;
    const Result<bool> any = (*reader)->Next(record);
    rows.status = any.status();
    if (!any.ok() || !*any) break;
    EXPECT_EQ(record.number, from.records + static_cast<int64_t>(rows.texts.size()) + 1);
    rows.texts.push_back(record.error.ok() ? record.data : "error: " + record.error.message());
  }
  return rows;
}

TEST(Parquet, ReadsEveryCodecAndEncoding) {
  for (const char* name : {"snappy_dictionary", "zstd_small_pages", "gzip_delta_length",
                           "lz4_delta", "brotli", "plain_checksums"}) {
    const Rows rows = ReadRows(Golden(name));
    ASSERT_TRUE(rows.status.ok()) << rows.status.message();
    ASSERT_EQ(rows.texts.size(), static_cast<size_t>(kRows)) << name;
    for (int row = 0; row < kRows; ++row)
      EXPECT_EQ(rows.texts[static_cast<size_t>(row)], ExpectedText(row)) << name;
  }
}

TEST(Parquet, GoesOnAtAnyRow) {
  for (const char* name : {"snappy_dictionary", "zstd_small_pages", "lz4_delta"}) {
    for (int row = 0; row <= kRows; ++row) {
      const Rows rows = ReadRows(Golden(name), {}, {.records = row, .bytes = 0});
      ASSERT_TRUE(rows.status.ok()) << rows.status.message();
      ASSERT_EQ(rows.texts.size(), static_cast<size_t>(kRows - row)) << name;
      if (row < kRows) {
        EXPECT_EQ(rows.texts[0], ExpectedText(row)) << name;
      }
    }
    const Rows beyond = ReadRows(Golden(name), {}, {.records = kRows + 1, .bytes = 0});
    EXPECT_EQ(beyond.status.code(), StatusCode::kDataLoss);
  }
}

TEST(Parquet, ColumnsGoByName) {
  const auto texts = [](const char* field) {
    const Rows rows = ReadRows(Golden("columns"), {.field = field});
    EXPECT_TRUE(rows.status.ok()) << rows.status.message();
    return rows.texts;
  };
  EXPECT_THAT(texts("text"),
              ElementsAre("one", "error: column `text` holds null, not text", "", "four"));
  EXPECT_THAT(texts("large"), ElementsAre("one", "two", "three", "four"));
  EXPECT_THAT(texts("kind"), ElementsAre("a", "b", "a", "b"));
  EXPECT_THAT(texts("meta.text"), ElementsAre("inner 0", "inner 1", "inner 2", "inner 3"));
  EXPECT_TRUE(ReadRows(Golden("empty")).texts.empty());
  EXPECT_TRUE(ReadRows(Golden("empty")).status.ok());
}

TEST(Parquet, AColumnThatIsMissingOrNotTextIsRefusedWithThoseThereAre) {
  struct Case {
    const char* field;
    const char* message;
  };
  const Case cases[] = {{"texts", "has no column `texts`; did you mean `text`?; it has: "},
                        {"id", "column `id` holds INT64, not text; it has: "},
                        {"raw", "column `raw` holds binary, not text; it has: "},
                        {"meta", "has no column `meta`"},
                        {"tags.list.element", "holds list, not text"}};
  for (const Case& c : cases) {
    const Status status = ReadRows(Golden("columns"), {.field = c.field}).status;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("columns.parquet: "));
    EXPECT_THAT(status.message(), HasSubstr(c.message));
    EXPECT_THAT(status.message(), HasSubstr("id (INT64), text (text), large (text)"));
  }
}

TEST(Parquet, ALargeDocumentIsNotCopied) {
  const Rows rows =
      ReadRows(Golden("columns"), {.field = "large", .lines = false, .max_document_bytes = 4});
  EXPECT_THAT(rows.texts, ElementsAre("one", "two", HasSubstr("error: more than 4 bytes"), "four"));
}

TEST(Parquet, CutOrForeignFilesAreDataLoss) {
  const TempDir dir;
  const Path path = dir.path() / "a.parquet";
  const std::string whole = *ReadFile(Golden("snappy_dictionary"));
  for (const std::string& bytes :
       {std::string(), std::string("PAR1"), std::string("not a Parquet file"), whole.substr(4),
        whole.substr(0, whole.size() / 2), whole.substr(0, whole.size() - 1), whole + "x",
        whole.substr(0, 200) + whole.substr(300)}) {
    ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
    const Status status = ReadRows(path).status;
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << bytes.size() << status.message();
    EXPECT_THAT(status.message(), HasSubstr("a.parquet"));
  }
}

// A flipped byte may spare what is read; it never ends the program, and with checksums in the file
// it never changes a text.
TEST(Parquet, FlippedBytesAreFoundOrHarmless) {
  const TempDir dir;
  const Path path = dir.path() / "a.parquet";
  for (const char* name : {"columns", "zstd_small_pages", "plain_checksums"}) {
    const std::string whole = *ReadFile(Golden(name));
    const std::vector<std::string> expected = ReadRows(Golden(name)).texts;
    int found = 0;
    for (size_t at = 0; at < whole.size(); at += whole.size() / 100) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x15);
      std::ofstream(path, std::ios::binary) << bytes;
      const Rows rows = ReadRows(path);
      if (!rows.status.ok()) {
        ++found;
        EXPECT_THAT(rows.status.message(), HasSubstr("a.parquet"));
      } else if (std::string(name) == "plain_checksums") {
        EXPECT_EQ(rows.texts, expected) << at;
      }
    }
    EXPECT_GT(found, 10) << name;
  }
}

TEST(Parquet, TextThatIsNotUtf8IsRefused) {
  const TempDir dir;
  TokenizeOptions options;
  options.inputs = {Golden("columns")};
  options.prefix = dir.path() / "out";
  options.records.field = "broken";
  const auto go_on = [] { return false; };
  const Status status = Tokenize(tokenizer::Reference(), options, go_on).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("columns.parquet:2: byte 0 is not UTF-8"));
  options.skip_bad = true;
  options.restart = true;
  const auto report = Tokenize(tokenizer::Reference(), options, go_on);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->manifest.documents, 3);
  EXPECT_EQ(report->manifest.bad_records, 1);
}

}  // namespace
}  // namespace ulmus::data
