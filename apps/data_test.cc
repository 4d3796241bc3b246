// `ulmus data` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
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
  EXPECT_EQ(instance["segments"][0]["targets"], 4);
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

// Of 1503 tokens in thirds, 188 instances of 8 tokens and 32 a batch: none comes out even.
constexpr const char* kMixtureRecipe = R"(
sequence_length = 8
global_batch = 4
mixture_tokens = 1503
[[data.sources]]
label = "cc"
paths = ["cc.npy"]
target_ratio = 0.3333
[[data.sources]]
label = "wiki"
paths = ["wiki.npy"]
target_ratio = 0.3333
[[data.sources]]
label = "pes"
paths = ["pes.npy"]
target_ratio = 0.3334
max_repetition_ratio = 2.0
)";

TEST_F(Data, MixExplainsTheMixtureOfARecipe) {
  for (const auto& [name, count] : {std::pair{"cc.npy", 1000}, {"wiki.npy", 707}, {"pes.npy", 333}})
    Write(name, std::vector<uint32_t>(static_cast<size_t>(count), 7));
  ASSERT_TRUE(WriteFileAtomic(At("m.toml"), "[data]\nbase_dir = \"" + dir_.path().string() + "\"" +
                                                kMixtureRecipe)
                  .ok());
  const Output output = RunData("mix " + At("m.toml") + " --json");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const json report = json::parse(output.text);
  EXPECT_EQ(report["requested_tokens"], 1503);
  EXPECT_EQ(report["instances"], 188);  // whole batches
  int64_t instances = 0;
  for (const json& source : report["sources"]) {
    const json& rounding = source["rounding"];
    EXPECT_EQ(rounding["whole"].get<int64_t>() + rounding["even"].get<int64_t>() +
                  rounding["remainder"].get<int64_t>() + rounding["exact"].get<int64_t>(),
              source["instances"].get<int64_t>());
    instances += source["instances"].get<int64_t>();
  }
  EXPECT_EQ(instances, 188);
  const json& pes = report["sources"][2];
  EXPECT_EQ(pes["tokens"], 333);
  EXPECT_EQ(pes["available_tokens"], 666);
  EXPECT_EQ(pes["asked_tokens"], 501);  // 1503 x 0.3334, rounded down
  EXPECT_EQ(pes["passes"], 2);
  const Output table = RunData("mix " + At("m.toml") + " --explain");
  EXPECT_THAT(table.text, HasSubstr("total: 188 instances"));
  EXPECT_THAT(table.text, HasSubstr("62.6250"));  // 501 / 8
  // What is read is what is explained.
  const Output audit = RunData("audit " + At("m.toml") + " --json");
  EXPECT_EQ(json::parse(audit.text)["instances"], 188) << audit.text;
  const Output ratio = RunData("mix " + At("m.toml") + " --ratio cc=1");
  EXPECT_EQ(ratio.exit_code, 2);
  EXPECT_THAT(ratio.text, HasSubstr("--ratio: the recipe says it"));
  const Output none = RunData("mix olmo3_7b_stage2");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.text, HasSubstr("[[data.sources]]"));
}

// The index stands elsewhere, the files were named from where the command ran.
TEST_F(Data, AnIndexIsReadFromAnyFolder) {
  ASSERT_TRUE(CreateDirectories(dir_.path() / "out" / "deep").ok());
  ASSERT_TRUE(CreateDirectories(dir_.path() / "elsewhere").ok());
  const std::string program = std::string("ULMUS_LOG=error ") + ULMUS_PROGRAM + " data ";
  const Output index = RunShell("cd " + At("out") + " && " + program +
                                "index ../a.npy ./../b.npy --sequence-length 4 --out deep/i.json");
  ASSERT_EQ(index.exit_code, 0) << index.text;
  EXPECT_EQ(json::parse(*ReadFile(At("out/deep/i.json")))["files"][0]["path"], At("a.npy"));
  const Output stats =
      RunShell("cd " + At("elsewhere") + " && " + program + "stats ../out/deep/i.json --json");
  ASSERT_EQ(stats.exit_code, 0) << stats.text;
  EXPECT_EQ(json::parse(stats.text)["tokens"], 20);
  EXPECT_EQ(json::parse(stats.text)["repeats"]["sequence_length"], 4);
  const std::string text =
      "[data]\nindex = \"" + At("out/deep/i.json") + "\"\nsequence_length = 4\nglobal_batch = 2\n";
  ASSERT_TRUE(WriteFileAtomic(At("indexed.toml"), text).ok());
  const Output audit =
      RunShell("cd " + At("elsewhere") + " && " + program + "audit " + At("indexed.toml"));
  EXPECT_EQ(audit.exit_code, 0) << audit.text;
}

// Neither a comment nor a line of another table makes a recipe one of a preset or of [data].
TEST_F(Data, AuditReadsARecipeOfNothingButData) {
  const std::string text =
      "data.sequence_length = 2  # as the preset\n[ model ]\nx = [\n  [1, 2],\n  [3],\n]\n"
      "[data.none]\n";
  ASSERT_TRUE(WriteFileAtomic(At("wrong.toml"), text).ok());
  const Output wrong = RunData("audit " + At("wrong.toml"));
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.text, HasSubstr("data.none"));
  EXPECT_THAT(wrong.text, testing::Not(HasSubstr("model")));
  ASSERT_TRUE(WriteFileAtomic(At("preset.toml"), "preset = \"tiny\"\nmodel.x = 1\n").ok());
  EXPECT_THAT(RunData("audit " + At("preset.toml")).text, HasSubstr("model.x"));
  ASSERT_TRUE(WriteFileAtomic(At("good.toml"),
                              "# no preset\n[model]\nx = \"\"\"\n[data]\n\"\"\"\n[ \"data\" ]\n"
                              "paths = [\n  \"a.npy\",\n]\nbase_dir = \"" +
                                  dir_.path().string() +
                                  "\"\nsequence_length = 2\nglobal_batch = 1\n[train]\ny = 2\n")
                  .ok());
  const Output good = RunData("audit " + At("good.toml"));
  EXPECT_EQ(good.exit_code, 0) << good.text;
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

// Four documents of a small tokenizer, in 16 bits.
class DataOfAManifest : public Data {
 protected:
  DataOfAManifest() {
    const char* root = std::getenv("ULMUS_SOURCE_DIR");
    std::string lines;
    for (const char* text : {"one two", "three", "four five six", "seven"})
      lines += json({{"text", text}}).dump() + "\n";
    EXPECT_TRUE(WriteFileAtomic(dir_.path() / "in.jsonl", lines).ok());
    const Output made = RunShell(std::string(ULMUS_PROGRAM) + " tokenize --dtype u16 --tokenizer " +
                                 (root != nullptr ? root : ".") +
                                 "/src/tokenizer/testdata/reference_tokenizer.json --out " +
                                 At("t") + " --json " + At("in.jsonl") + " 2>/dev/null");
    EXPECT_EQ(made.exit_code, 0) << made.text;
  }
  const std::string manifest_ = At("t.manifest.json");
};

TEST_F(DataOfAManifest, TakesItsTokensAsTheManifestSays) {
  const json says = json::parse(*ReadFile(manifest_));
  const std::string eos = std::to_string(says["eos_id"].get<int64_t>());
  const Output stats = RunData("stats " + manifest_ + " --sequence-length 4 --json");
  ASSERT_EQ(stats.exit_code, 0) << stats.text;
  EXPECT_EQ(json::parse(stats.text)["documents"], 4);
  EXPECT_EQ(json::parse(stats.text)["tokens"], says["tokens"]);
  const Output shown =
      RunData("show " + manifest_ + " --dataset packed --sequence-length 64 --tokens 64 --json");
  ASSERT_EQ(shown.exit_code, 0) << shown.text;
  const json segments = json::parse(shown.text)["instances"][0]["segments"];
  ASSERT_EQ(segments.size(), 5u);  // and padding
  EXPECT_THAT(segments[0]["ids"].get<std::string>(), testing::EndsWith(" " + eos));
  const Output index = RunData("index " + manifest_ + " --sequence-length 4 --out " + At("i.json"));
  ASSERT_EQ(index.exit_code, 0) << index.text;
  EXPECT_EQ(json::parse(*ReadFile(At("i.json")))["dtype"], "uint16");
}

TEST_F(DataOfAManifest, RefusesFlagsThatContradictIt) {
  const json says = json::parse(*ReadFile(manifest_));
  const std::string eos = std::to_string(says["eos_id"].get<int64_t>());
  const std::string vocab_size = std::to_string(says["vocab_size"].get<int64_t>());
  const struct {
    std::string flags;
    std::string message;
  } cases[] = {
      {"--dtype u32", "--dtype u32: " + manifest_ + " says u16"},
      {"--eos 5", "--eos 5: " + manifest_ + " says " + eos},
      {"--vocab-size 100278", "--vocab-size 100278: " + manifest_ + " says " + vocab_size},
      {"--pad " + vocab_size, "--pad " + vocab_size},
      {"--bos " + vocab_size, "--bos " + vocab_size},
  };
  const std::string index = "index --sequence-length 4 --out " + At("i.json") + " ";
  for (const std::string& command :
       {std::string("stats "), std::string("show --sequence-length 4 "), index}) {
    for (const auto& c : cases) {
      const Output output = RunData(command + manifest_ + " " + c.flags);
      EXPECT_EQ(output.exit_code, 2) << command << c.flags << "\n" << output.text;
      EXPECT_THAT(output.text, HasSubstr(c.message));
    }
    const Output same = RunData(command + manifest_ + " --dtype u16 --pad 1 --eos " + eos);
    EXPECT_EQ(same.exit_code, 0) << same.text;
  }
}

TEST_F(Data, FailsWithTheCodeOfTheReason) {
  std::vector<uint32_t> narrow(500, 0x00050007);  // 16-bit tokens 7 5 7 5 ...
  narrow[3] = 0x00060009;
  Write("narrow.npy", narrow);
  Write("empty.npy", {});
  ASSERT_EQ(RunShell("mkfifo " + At("pipe.npy")).exit_code, 0);
  const std::string index = At("i.json");
  ASSERT_EQ(RunData("index " + At("a.npy") + " --sequence-length 4 --out " + index).exit_code, 0);
  const std::string mix = "mix " + At("mix.txt") +
                          " --tokens 8 --sequence-length 2 --global-batch-tokens 2"
                          " --ratio cc=0.5 --ratio wiki=0.5 ";
  const struct {
    std::string arguments;
    int exit_code;
    std::string message;
  } cases[] = {
      {"stats " + At("none.npy"), 1, "do not exist"},
      {"stats " + At("narrow.npy"), 3, "outside the vocabulary"},
      {"stats " + At("mix.txt") + " --dtype f32", 2, "tokens are integers"},
      {"show " + At("a.npy") + " --sequence-length 4 --instance 2", 2, "has 0 .. 1"},
      {"show " + At("a.npy") + " --sequence-length 4 --instance 9223372036854775800 --count 99", 2,
       "has 0 .. 1"},
      {"show " + At("a.npy") + " --sequence-length 100", 2, "no instance"},
      {"stats " + At("a.npy") + " --vocab-size 1000", 2, "--eos 100257: must be from 0 to 999"},
      {"stats " + At("a.npy") + " --vocab-size 1000 --eos -1", 2, "--eos -1"},
      {"stats " + At("a.npy") + " --pad 200000", 2, "--pad 200000"},
      {"index " + At("a.npy") + " --sequence-length 4 --out /dev/null", 2, "not a regular file"},
      {"audit --instances 9223372036854775807 --ids " + At("mix.txt"), 2, "instances: expected 1"},
      {"index " + At("a.npy") + " --sequence-length 0 --out x", 2,
       "--sequence-length: 0: must be a whole number from 1 on"},
      {"audit tiny --hosts 4,0", 2, "--hosts: 0: must be a whole number from 1 on"},
      {"audit tiny --instances 5", 2, "--instances: the recipe's data says it"},
      {"audit tiny --ids " + At("mix.txt") + " --hosts 2", 2, "--hosts: --ids FILE judges"},
      {"audit --ids " + At("mix.txt") + " --instances 5 --set a=1", 2, "--set: there is no recipe"},
      {"audit tiny --resize 8:4", 2, "resize `8:4`"},
      {mix + "--ratio cc=0.5", 2, "--ratio cc=0.5: given twice for cc"},
      {mix + "--repeat cc=2 --repeat cc=3", 2, "--repeat cc=3: given twice for cc"},
      {mix + "--repeat dclm=2", 2, "it has cc, wiki"},
      {mix + "--repeat cc=", 2, "expected LABEL=NUMBER"},
      {"mix " + At("mix.txt") + " --ratio cc=1", 2, "--tokens: needed"},
      {"stats " + index + " --sequence-length 8", 2, "--sequence-length 8: the index says 4"},
      {"show " + index + " --sequence-length 8", 2, "--sequence-length 8: the index says 4"},
      {"show " + index + " --dataset packed", 2, "--dataset packed: an index"},
      {"stats " + index + " --dtype u16", 2, "--dtype u16: " + index + " says u32"},
      {"stats " + At("mix.txt") + " --verify", 2, "--verify: no input is a manifest"},
      {"index " + At("a.npy") + " " + At("empty.npy") + " --sequence-length 4 --out " +
           At("e.json"),
       3, "empty.npy: holds no token"},
      {"index " + At("a.npy") + " --sequence-length 100 --out " + At("e.json"), 2,
       "no file holds that many"},
      {"stats " + At("pipe.npy"), 2, "pipe.npy: not a regular file"},
      {"index " + At("a.npy") + " --sequence-length 4 --out \"\"", 2, "--out: empty"},
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
