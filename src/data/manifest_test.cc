#include "data/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/hash.h"

namespace ulmus::data {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Manifest Example() {
  Manifest manifest = {
      .dtype = DType::kU16,
      .vocab_size = 4096,
      .eos_id = 4094,
      .tokenizer = "sha256:" + Sha256Hex("t"),
      .tokens = 11,
      .documents = 3,
      .empty_documents = 1,
      .bad_records = 2,
      .settings = Sha256Hex("s"),
      .inputs = {{.path = "in/a.jsonl.gz", .bytes = 77, .sample_hash = ~uint64_t{0}},
                 {.path = "b", .bytes = 1}},
      .files = {}};
  manifest.files.push_back(
      {.part = {.name = "wiki-00000.npy",
                .bytes = 14,
                .sha256 = Sha256Hex("0"),
                .sample_hash = 0x0123456789abcdef},
       .tokens = 7,
       .documents = 2,
       .sidecar =
           ManifestPart{.name = "wiki-00000.csv.gz", .bytes = 30, .sha256 = Sha256Hex("c")}});
  manifest.files.push_back(
      {.part = {.name = "wiki-00001.npy", .bytes = 8, .sha256 = Sha256Hex("1")},
       .tokens = 4,
       .documents = 1,
       .sidecar = std::nullopt});
  return manifest;
}

TEST(Manifest, ReadsWhatItWrites) {
  const TempDir dir;
  const Path path = dir.path() / "wiki.manifest.json";
  ASSERT_TRUE(WriteManifest(path, Example()).ok());
  const Result<Manifest> manifest = ReadManifest(path);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_EQ(*manifest, Example());
}

TEST(Manifest, RefusesWhatContradictsItself) {
  struct Case {
    const char* pointer;
    Json value;
    const char* message;
  };
  const Case cases[] = {
      {"/format", "other", "expected `ulmus tokens`"},
      {"/dtype", "f32", "no unsigned integer"},
      {"/tokens", 12, "the sums say 12"},
      {"/documents", 4, "the sums say 11 in 4"},
      {"/documents", -1, "expected a count"},
      {"/tokens", 1.5, "expected a count"},
      {"/tokens", uint64_t{1} << 63, "expected a count"},
      {"/eos_id", 4096, "outside the vocabulary"},
      {"/files/0/bytes", 15, "take 14 bytes"},
      {"/files/0/name", "../x.npy", "no plain file name"},
      {"/files/0/name", "/x.npy", "no plain file name"},
      {"/files/0/name", "", "no plain file name"},
      {"/files/1/name", "wiki-00000.npy", "stands twice"},
      {"/files/1/sha256", "abc", "64 hexadecimal digits"},
      {"/files/0/sample_hash", "0123456789ABCDEF", "16 hexadecimal digits"},
      {"/files/0/sample_hash", 3, "expected text"},
      {"/files/0/sidecar/name", "..", "no plain file name"},
      {"/files", 3, "`files` is no list"},
      {"/inputs/0/sample_hash", "", "16 hexadecimal digits"},
      {"/inputs/0", 3, "no JSON object"},
  };
  for (const Case& c : cases) {
    Json json = Json::parse(PrintManifest(Example()));
    json[Json::json_pointer(c.pointer)] = c.value;
    const Status status = ParseManifest(json.dump(), "m.json").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << c.pointer << ": " << status.message();
    EXPECT_THAT(status.message(), HasSubstr(c.message)) << c.pointer;
    EXPECT_THAT(status.message(), HasSubstr("m.json: "));
  }
  EXPECT_EQ(ParseManifest("{\"format\": \"ulmus tokens\", \"version\": 2}", "m").status().code(),
            StatusCode::kUnimplemented);
  const std::string text = PrintManifest(Example());
  for (size_t size = 0; size + 2 < text.size(); size += 7)
    EXPECT_EQ(ParseManifest(text.substr(0, size), "m").status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ulmus::data
