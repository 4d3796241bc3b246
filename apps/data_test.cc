// `ulmus data` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/testing/run_program.h"
#include "base/file.h"

namespace ulmus::apps {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Output RunData(const std::string& arguments) {
  return RunShell(std::string("ULMUS_LOG=error ") + ULMUS_PROGRAM + " data " + arguments);
}

constexpr uint32_t kEos = 100257;

// Two sources; 20 tokens in 4 documents and 3 tokens after them.
class Data : public testing::Test {
 protected:
  Data() {
    Write("a.npy", {5, 6, kEos, 7, 8, 9, 10, kEos, 11, 12, 13});
    Write("b.npy", {1, 2, 3, 4, 5, kEos, 6, 7, kEos});
    EXPECT_TRUE(WriteFileAtomic(dir_.path() / "mix.txt", "# two\ncc,a.npy\nwiki,b.npy\n").ok());
  }
  void Write(const std::string& name, const std::vector<uint32_t>& tokens) {
    EXPECT_TRUE(WriteFileAtomic(dir_.path() / name, std::as_bytes(std::span(tokens))).ok());
  }
  std::string At(const std::string& name) const { return (dir_.path() / name).string(); }
  TempDir dir_;
};

TEST_F(Data, StatsCountsTokensDocumentsAndSources) {
  const Output output = RunData("stats " + At("mix.txt") + " --sequence-length 4 --json");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const json report = json::parse(output.text);
  EXPECT_EQ(report["tokens"], 20);
  EXPECT_EQ(report["documents"], 4);
  EXPECT_TRUE(report["seconds"].is_number());
  EXPECT_EQ(report["tokens_outside_documents"], 3);
  EXPECT_EQ(report["document_length"]["min"], 3);
  EXPECT_EQ(report["document_length"]["max"], 6);
  EXPECT_EQ(report["sources"][1]["source"], "wiki");
  EXPECT_EQ(report["sources"][1]["tokens"], 9);
  EXPECT_EQ(report["repeats"]["instances"], 4);
}

TEST_F(Data, IndexIsWrittenAndShown) {
  const Output index =
      RunData("index " + At("mix.txt") + " --sequence-length 4 --out " + At("i.json") + " --json");
  ASSERT_EQ(index.exit_code, 0) << index.text;
  EXPECT_EQ(json::parse(index.text)["instances"], 4);
  const Output shown = RunData("show " + At("i.json") + " --instance 2 --json");
  ASSERT_EQ(shown.exit_code, 0) << shown.text;
  const json report = json::parse(shown.text);
  EXPECT_EQ(report["num_instances"], 4);
  EXPECT_EQ(report["instances"][0]["source"], "wiki");
  EXPECT_EQ(report["instances"][0]["segments"][0]["ids"], "1 2 3 4");
}

TEST_F(Data, ShowsBordersAndPadding) {
  const Output shown =
      RunData("show " + At("a.npy") + " --dataset packed --sequence-length 10 --json");
  ASSERT_EQ(shown.exit_code, 0) << shown.text;
  const json instance = json::parse(shown.text)["instances"][0];
  ASSERT_EQ(instance["segments"].size(), 3u);
  EXPECT_EQ(instance["segments"][0]["end"], 5);
  EXPECT_EQ(instance["segments"][1]["targets"], 3);
  EXPECT_EQ(instance["segments"][2]["segment"], 0);
  EXPECT_EQ(instance["segments"][2]["targets"], 0);
}

TEST_F(Data, MixExplainsExactlyWhatIsAsked) {
  const std::string sizes = " --sequence-length 2 --global-batch-tokens 2 --tokens 10";
  const Output mix =
      RunData("mix " + At("mix.txt") + " --ratio cc=0.6 --ratio wiki=0.4 --json" + sizes);
  ASSERT_EQ(mix.exit_code, 0) << mix.text;
  const json report = json::parse(mix.text);
  EXPECT_EQ(report["tokens"], 10);
  EXPECT_EQ(report["sources"][0]["instances"], 3);
  EXPECT_EQ(report["sources"][1]["instances"], 2);
  const Output short_of = RunData("mix " + At("mix.txt") +
                                  " --ratio cc=0.1 --ratio wiki=0.9 --sequence-length 2"
                                  " --global-batch-tokens 2 --tokens 20");
  EXPECT_EQ(short_of.exit_code, 2);
  EXPECT_THAT(short_of.text, HasSubstr("source wiki: 18 of 20 tokens are asked"));
}

TEST_F(Data, AuditProvesThatEachInstanceIsUsedOnce) {
  ASSERT_TRUE(
      WriteFileAtomic(dir_.path() / "r.toml",
                      "[model]\nkey = 1\n[data]\npaths = [\"a.npy\", \"b.npy\"]\nbase_dir = \"" +
                          dir_.path().string() + "\"\nsequence_length = 2\nglobal_batch = 4\n")
          .ok());
  const Output output =
      RunData("audit " + At("r.toml") + " --hosts 1,2,4 --resume-at 1 --resize 4:2@1 --json");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const json report = json::parse(output.text);
  EXPECT_EQ(report["instances"], 9);
  EXPECT_EQ(report["used_once"], 8);
  EXPECT_EQ(report["missing"], 1);  // fills no batch
  EXPECT_EQ(report["dropped"], 1);
  EXPECT_EQ(report["repeated"], 0);
  EXPECT_EQ(report["holds"], true);
  EXPECT_EQ(report["runs"].size(), 7u);
}

TEST_F(Data, AuditJudgesIdsOfAnotherProgram) {
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "ids", "0 1 2 2 5\n").ok());
  const Output output = RunData("audit --ids " + At("ids") + " --instances 6 --json");
  EXPECT_EQ(output.exit_code, 4) << output.text;
  const json report = json::parse(output.text);
  EXPECT_EQ(report["repeated_ids"], json({2}));
  EXPECT_EQ(report["missing_ids"], json({3, 4}));
  EXPECT_EQ(report["holds"], false);
}

TEST_F(Data, FailsWithTheCodeOfTheReason) {
  std::vector<uint32_t> narrow(500, 0x00050007);  // 16-bit tokens 7 5 7 5 ...
  narrow[3] = 0x00060009;
  Write("narrow.npy", narrow);
  const struct {
    std::string arguments;
    int exit_code;
    const char* message;
  } cases[] = {
      {"stats " + At("none.npy"), 1, "do not exist"},
      {"stats " + At("narrow.npy"), 3, "outside the vocabulary"},
      {"stats " + At("mix.txt") + " --dtype f32", 2, "tokens are integers"},
      {"show " + At("a.npy") + " --sequence-length 4 --instance 2", 2, "has 0 .. 1"},
      {"show " + At("a.npy") + " --sequence-length 4 --instance 9223372036854775800 --count 99", 2,
       "has 0 .. 1"},
      {"show " + At("a.npy") + " --sequence-length 100", 2, "no instance"},
      {"index " + At("a.npy") + " --sequence-length 4 --out /dev/null", 2, "not a regular file"},
      {"audit --instances 9223372036854775807 --ids " + At("mix.txt"), 2, "instances: expected 1"},
      {"index " + At("a.npy") + " --sequence-length 0 --out x", 2, "sequence-length"},
      {"", 2, "subcommand"},
  };
  for (const auto& c : cases) {
    const Output output = RunData(c.arguments);
    EXPECT_EQ(output.exit_code, c.exit_code) << c.arguments << "\n" << output.text;
    EXPECT_THAT(output.text, HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace ulmus::apps
