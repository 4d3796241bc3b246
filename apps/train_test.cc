// `ulmus train` from outside: kills, signals, completed runs, folders that hold something else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/testing/run_program.h"
#include "base/file.h"
#include "pjrt/testing.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int kSteps = 12;

// Saves sync every file, which a disk that others use takes seconds for.
[[maybe_unused]] const int kInMemory =
    access("/dev/shm", W_OK) == 0 ? setenv("TMPDIR", "/dev/shm", /*overwrite=*/0) : 0;

// Token ids of a text that a model can learn: each follows from the one before, with documents of
// 50 tokens.
void WriteTokens(const Path& path, int num_tokens, uint32_t salt) {
  std::ofstream file(path, std::ios::binary);
  uint32_t token = salt;
  for (int i = 1; i <= num_tokens; ++i) {
    token = (token * 5 + 7 + (i % 11 == 0 ? salt : 0)) % 60;
    const uint32_t id = i % 50 == 0 ? 62 : token;
    file.write(reinterpret_cast<const char*>(&id), sizeof id);
  }
}

class Train : public testing::Test {
 protected:
  void SetUp() override {
    if (!pjrt::SharedDefaultClient(1).ok())
      GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
    WriteTokens(temp_.path() / "train.npy", 16 * 8 * 40, 3);
    WriteTokens(temp_.path() / "heldout.npy", 400, 5);
    WriteFile("small.toml", fmt::format(R"(
[model]
vocab_size = 64
hidden_size = 32
intermediate_size = 48
num_layers = 4
num_heads = 4
num_kv_heads = 2
max_position_embeddings = 16
sliding_window = 8
eos_token_id = 62
pad_token_id = 63
[data]
base_dir = "{}"
paths = ["train.npy"]
vocab_size = 64
eos_id = 62
pad_id = 63
sequence_length = 16
global_batch = 8
[train]
steps = {}
microbatches = 2
dtype = "float32"
[[schedule.phases]]
kind = "cosine"
lr = 1e-2
warmup = 2
t_max = {}
[eval]
every = 4
[[eval.sets]]
name = "held"
paths = ["heldout.npy"]
[checkpoint]
every = 3
keep_last = 0
)",
                                        temp_.path().string(), kSteps, kSteps));
  }

  void WriteFile(const std::string& name, const std::string& text) {
    std::ofstream(temp_.path() / name) << text;
  }
  Path Folder(const std::string& name) const { return temp_.path() / name; }
  std::string Command(const std::string& run, const std::string& more = "") const {
    return fmt::format("train {} --run-dir {} {}", (temp_.path() / "small.toml").string(),
                       Folder(run).string(), more);
  }
  Output Run(const std::string& run, const std::string& more = "") const {
    return RunUlmus(Command(run, more));
  }

  // What a run records that must not depend on the machine or on how often it was started.
  std::vector<std::string> Records(const std::string& run) const {
    std::vector<std::string> records;
    std::ifstream file(Folder(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      Json json = Json::parse(line);
      if (json["kind"] == "event") continue;
      for (const char* key : {"data_wait_s", "step_s", "tokens_per_s", "flops_per_s", "mfu",
                              "resident_bytes", "device_bytes", "wall_time_s"})
        json.erase(key);
      records.push_back(json.dump());
    }
    return records;
  }
  // Texts of all events of that name.
  std::vector<std::string> EventTexts(const std::string& run, const std::string& name) const {
    std::vector<std::string> texts;
    std::ifstream file(Folder(run) / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json json = Json::parse(line);
      if (json["kind"] == "event" && json["name"] == name) texts.push_back(json["text"]);
    }
    return texts;
  }
  Path Checkpoint(const std::string& run, int step) const {
    return Folder(run) / fmt::format("checkpoints/step-{:08}", step);
  }
  static void FlipByte(const Path& path) {
    std::string bytes = *ReadFile(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  }
  static int CountOf(std::string_view text, std::string_view part) {
    int count = 0;
    for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  }
  void ExpectSameCheckpoint(const std::string& a, const std::string& b, int step) const {
    const Output diff =
        RunShell(fmt::format("diff -r {} {}", Checkpoint(a, step), Checkpoint(b, step)));
    EXPECT_EQ(diff.exit_code, 0) << diff.text;
  }

 private:
  TempDir temp_;
};

// B29 of the public cases, too: the learning rate of each step is the schedule's, whatever was
// killed when, and nothing is trained behind the end.
TEST_F(Train, AKilledRunGoesOnToTheSameBits) {
  ASSERT_EQ(Run("straight").exit_code, 0);
  // SIGKILL as soon as a step beyond the second checkpoint is recorded.
  const std::string metrics = (Folder("killed") / "metrics.jsonl").string();
  const Output killed = RunShell(fmt::format(
      "{} {} >/dev/null 2>&1 & pid=$!; while ! grep -qs '\"step\":7,' {}; do sleep 0.01; kill -0 "
      "$pid || break; done; kill -KILL $pid; wait $pid; echo ended $?",
      ULMUS_PROGRAM, Command("killed", "--set train.steps=12"), metrics));
  EXPECT_THAT(killed.text, HasSubstr("ended"));
  const Output resumed = Run("killed");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.text;
  EXPECT_THAT(resumed.text, HasSubstr("resume"));
  EXPECT_EQ(Records("straight"), Records("killed"));
  EXPECT_EQ(Records("straight").size(), static_cast<size_t>(kSteps + 1 + kSteps / 4));
  ExpectSameCheckpoint("straight", "killed", kSteps);
}

TEST_F(Train, ASignalSavesAndAsksToBeStartedAgain) {
  ASSERT_EQ(Run("straight").exit_code, 0);
  const std::string metrics = (Folder("stopped") / "metrics.jsonl").string();
  const Output stopped =
      RunShell(fmt::format("{} {} >/dev/null 2>&1 & pid=$!; while ! grep -qs '\"step\":1,' {}; do "
                           "sleep 0.01; done; kill "
                           "-TERM $pid; wait $pid; echo ended $?",
                           ULMUS_PROGRAM, Command("stopped"), metrics));
  EXPECT_THAT(stopped.text, HasSubstr("ended 75"));
  ASSERT_EQ(Run("stopped").exit_code, 0);
  EXPECT_EQ(Records("straight"), Records("stopped"));
  ExpectSameCheckpoint("straight", "stopped", kSteps);
}

// B44.
TEST_F(Train, ACompleteRunIsLeftAloneAndMayGrow) {
  ASSERT_EQ(Run("run").exit_code, 0);
  const std::string list =
      fmt::format("find {} -type f -printf '%p %s %T@\\n' | sort", Folder("run").string());
  const std::string before = RunShell(list).text;
  const Output again = Run("run", "--json");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.text, HasSubstr("already complete at step 12"));
  EXPECT_EQ(RunShell(list).text, before);
  const Output shorter = Run("run", "--set train.steps=8");
  EXPECT_EQ(shorter.exit_code, 2);
  EXPECT_THAT(shorter.text, HasSubstr("at step 12 already, the recipe ends at step 8"));
  EXPECT_EQ(RunShell(list).text, before);
  const Output longer = Run("run", "--set train.steps=14");
  EXPECT_EQ(longer.exit_code, 0) << longer.text;
  EXPECT_THAT(longer.text, HasSubstr("complete at step 14"));
}

// B43: absent, lost, incomplete, unreadable.
TEST_F(Train, AStepThatIsNotThereIsNoSilentStart) {
  ASSERT_EQ(Run("run").exit_code, 0);
  const Output absent = Run("run", "--from-step 999");
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.text, HasSubstr("3, 6, 9, 12"));
  ASSERT_TRUE(RemoveTree(Checkpoint("run", 9) / "lm_head.weight").ok());
  const Output incomplete = Run("run", "--from-step 9");
  EXPECT_EQ(incomplete.exit_code, 3);
  EXPECT_THAT(incomplete.text, HasSubstr("lm_head.weight/"));
  // Saved once, lost since.
  ASSERT_EQ(RunShell("rm -r " + (Folder("run") / "checkpoints").string() + "/*").exit_code, 0);
  const Output lost = Run("run");
  EXPECT_EQ(lost.exit_code, 3);
  EXPECT_THAT(lost.text, HasSubstr("--start-over"));
  EXPECT_EQ(Run("run", "--start-over").exit_code, 0);
}

// B43: one that may not be read may be whole, so an older one must not take its place.
TEST_F(Train, ACheckpointThatMayNotBeReadIsAnError) {
  ASSERT_EQ(Run("run", "--set train.steps=6").exit_code, 0);
  const Path newest = Checkpoint("run", 6), folder = Folder("run");
  ASSERT_EQ(RunShell(fmt::format("chmod 755 {}; chmod -R a+rwX {}; chmod 0 {}",
                                 folder.parent_path(), folder, newest))
                .exit_code,
            0);
  // Permissions do not bind the superuser.
  const std::string user = geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups " : "";
  const Output output =
      RunShell(fmt::format("{}{} {}", user, ULMUS_PROGRAM, Command("run", "--no-cache")));
  EXPECT_EQ(output.exit_code, 1) << output.text;
  EXPECT_THAT(output.text, AllOf(HasSubstr("step-00000006"), HasSubstr("Permission denied")));
  EXPECT_TRUE(*PathExists(newest));
}

TEST_F(Train, ADamagedNewestCheckpointIsPassedOver) {
  ASSERT_EQ(Run("straight").exit_code, 0);
  for (const bool content : {false, true}) {
    const std::string run = content ? "content" : "manifest";
    ASSERT_EQ(Run(run).exit_code, 0);
    const Path newest = Checkpoint(run, 12);
    const std::string damage = content ? "model.norm.weight/c/0 (checksum differs)" : "manifest";
    if (content)
      FlipByte(newest / "model.norm.weight/c/0");
    else
      ASSERT_TRUE(RemoveFile(newest / "manifest.json").ok());
    const Output resumed = Run(run);
    EXPECT_EQ(resumed.exit_code, 0) << resumed.text;
    EXPECT_THAT(resumed.text, HasSubstr("step-00000009"));
    // Said once to people, kept as an event.
    EXPECT_EQ(CountOf(resumed.text, "warning: passed over: "), 1) << resumed.text;
    EXPECT_THAT(resumed.text, HasSubstr(damage));
    EXPECT_THAT(EventTexts(run, "passed_over"),
                ElementsAre(AllOf(HasSubstr("step 12 passed over, step 9 taken instead"),
                                  HasSubstr(damage))));
    EXPECT_TRUE(*PathExists(newest.string() + ".set-aside"));
    ExpectSameCheckpoint("straight", run, kSteps);
    EXPECT_EQ(Records("straight"), Records(run));
  }
}

TEST_F(Train, ADamagedCheckpointThatWasNamedIsAnError) {
  ASSERT_EQ(Run("run").exit_code, 0);
  FlipByte(Checkpoint("run", 9) / "exp_avg.model.norm.weight/c/0");
  const std::string list = fmt::format("find {} | sort", Checkpoint("run", 0).parent_path());
  const std::string before = RunShell(list).text;
  const Output named = Run("run", "--from-step 9");
  EXPECT_EQ(named.exit_code, 3) << named.text;
  EXPECT_THAT(named.text, HasSubstr("exp_avg.model.norm.weight/c/0 (checksum differs)"));
  EXPECT_EQ(RunShell(list).text, before);
  // All of them: never a silent start from initial weights, even without the records.
  for (const int step : {3, 6, 12})
    ASSERT_TRUE(RemoveFile(Checkpoint("run", step) / "manifest.json").ok());
  ASSERT_TRUE(RemoveFile(Folder("run") / "metrics.jsonl").ok());
  const Output none = Run("run");
  EXPECT_EQ(none.exit_code, 3) << none.text;
  EXPECT_THAT(none.text, HasSubstr("--start-over"));
}

TEST_F(Train, AFolderUnderAnotherStepsNameIsPassedOver) {
  ASSERT_EQ(Run("run", "--set train.steps=6").exit_code, 0);
  ASSERT_TRUE(Rename(Checkpoint("run", 6), Checkpoint("run", 9)).ok());
  const Output resumed = Run("run");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.text;
  EXPECT_THAT(EventTexts("run", "passed_over"), ElementsAre(HasSubstr("manifest is of step 6")));
  EXPECT_THAT(resumed.text, HasSubstr("step-00000003"));
}

TEST_F(Train, AnotherRecipeNeedsItsKeyAccepted) {
  ASSERT_EQ(Run("run", "--set train.steps=6").exit_code, 0);
  const Output refused = Run("run", "--set optim.beta1=0.8");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.text, HasSubstr("optim.beta1 was 0.9, is 0.8"));
  EXPECT_EQ(Run("run", "--set optim.beta1=0.8 --accept optim.beta1").exit_code, 0);
}

TEST_F(Train, OtherMicrobatchesAndDevicesReadTheSameData) {
  ASSERT_EQ(Run("one", "--set train.microbatches=1").exit_code, 0);
  ASSERT_EQ(Run("four", "--set train.microbatches=4 --set mesh.fsdp=2").exit_code, 0);
  const std::vector<std::string> one = Records("one"), four = Records("four");
  ASSERT_EQ(one.size(), four.size());
  for (size_t i = 0; i < one.size(); ++i) {
    const Json a = Json::parse(one[i]), b = Json::parse(four[i]);
    if (a["kind"] != "step") continue;
    EXPECT_EQ(a["id_hash"], b["id_hash"]);
    EXPECT_NEAR(a["loss"].get<double>(), b["loss"].get<double>(), 1e-4) << one[i];
  }
}

// B22: documents of different length, in batches that they do not fill.
TEST_F(Train, HeldOutLossIsTheSameForAnyBatchAndMesh) {
  const auto losses = [&](const std::string& run, const std::string& more) {
    EXPECT_EQ(Run(run, "--set train.steps=4 " + more).exit_code, 0);
    std::vector<Json> found;
    for (const std::string& record : Records(run))
      if (const Json json = Json::parse(record); json["kind"] == "eval") found.push_back(json);
    return found;
  };
  const std::vector<Json> one = losses("one", "--set eval.batch=1");
  ASSERT_EQ(one.size(), 2u);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"five", "--set eval.batch=5"}, {"two", "--set eval.batch=6 --set mesh.data=2"}};
  for (const auto& [run, more] : cases) {
    const std::vector<Json> other = losses(run, more);
    ASSERT_EQ(other.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(other[i]["count"], one[i]["count"]);
      EXPECT_NEAR(other[i]["loss"].get<double>(), one[i]["loss"].get<double>(), 1e-5) << more;
    }
  }
}

// B52, with the torn and doubled records of src/metrics.
TEST_F(Train, ASecondWriterIsRefused) {
  const std::string metrics = (Folder("run") / "metrics.jsonl").string();
  const Output output = RunShell(
      fmt::format("( {0} {1} --set mesh.data=1 >/dev/null 2>&1 & pid=$!; while ! grep -qs "
                  "'\"step\":1,' {2}; do "
                  "sleep 0.01; done; {0} {1}; echo second $?; kill -TERM $pid; wait $pid )",
                  ULMUS_PROGRAM, Command("run"), metrics));
  EXPECT_THAT(output.text, HasSubstr("second 1"));
  EXPECT_THAT(output.text, HasSubstr("run is in use by process"));
}

TEST_F(Train, AChangeOfStageKeepsMomentsAndBeginsItsCounters) {
  ASSERT_EQ(Run("first").exit_code, 0);
  const Output second =
      Run("second", fmt::format("--set train.start_from={} --set "
                                "train.start_with=weights_and_moments --set train.steps=3",
                                Folder("first").string()));
  ASSERT_EQ(second.exit_code, 0) << second.text;
  const Json step = Json::parse(Records("second")[1]);
  EXPECT_EQ(step["step"], 1);
  EXPECT_EQ(step["tokens"], 128);
  EXPECT_EQ(step["adam_count"], kSteps + 1);
  EXPECT_LT(step["loss"].get<double>(), 4.0);
}

TEST_F(Train, WeightsThatAreNoNumbersAndLostModelsAreErrors) {
  const Output lost = Run("lost",
                          "--set train.steps=20 --set checkpoint.keep_last=1 --set optim.skip=off "
                          "--set optim.clip=off --set 'schedule.phases=[{kind=\"constant\",lr=1e-3,"
                          "until=5},{kind=\"constant\",lr=1e6}]'");
  EXPECT_EQ(lost.exit_code, 1) << lost.text;
  EXPECT_THAT(lost.text, HasSubstr("this model is lost"));
  EXPECT_THAT(lost.text, Not(HasSubstr("-nan")));
  EXPECT_THAT(lost.text, HasSubstr("mesh data=1"));
  // The last one from before stays, whatever keep_last says.
  const Output list = RunShell("ls " + (Folder("lost") / "checkpoints").string());
  EXPECT_THAT(list.text, HasSubstr("step-00000006"));
  const Output started = Run("next", "--set train.start_from=" + Folder("lost").string());
  EXPECT_NE(started.exit_code, 0) << started.text;
  const Output tokenizer = Run("tokenizer", "--set train.tokenizer=absent.json");
  EXPECT_EQ(tokenizer.exit_code, 2);
  EXPECT_THAT(tokenizer.text, HasSubstr("absent.json"));
  EXPECT_EQ(Run("both", "--from-step 3 --start-over").exit_code, 2);
}

// The commands of `train --help`, as they stand there.
TEST_F(Train, ItsHelpLeadsFromTextToASample) {
  const std::string help = RunUlmus("train --help").text;
  std::string script = "set -e; ulmus() { " ULMUS_PROGRAM " \"$@\"; }\n";
  std::istringstream lines(help.substr(help.find("Example")));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("  ")) script += line + "\n";
  EXPECT_THAT(script, AllOf(HasSubstr("ulmus tokenize"), HasSubstr("train.tokenizer="),
                            HasSubstr("ulmus generate")));
  const Path folder = Folder("chain");
  const std::string source = std::getenv("ULMUS_SOURCE_DIR");
  ASSERT_EQ(
      RunShell(fmt::format("mkdir -p {0}/text; ln -s {1}/demo {1}/.deps {0}; cp {1}/README.md "
                           "{0}/text/a.txt",
                           folder, source))
          .exit_code,
      0);
  WriteFile("chain.sh", script);
  const Output output =
      RunShell(fmt::format("cd {} && sh {}", folder, (Folder("chain.sh")).string()));
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("complete at step 100"));
}

TEST_F(Train, ARunDirectoryThatIsAFileIsRefused) {
  const Output output = Run("small.toml");
  EXPECT_EQ(output.exit_code, 2);
  EXPECT_THAT(output.text, HasSubstr("small.toml is no directory"));
}

TEST_F(Train, WhatIsWrongIsSaidBeforeAnythingIsWritten) {
  for (const auto& [more, text] : std::vector<std::pair<std::string, std::string>>{
           {"--set optim.beta_1=0.9", "did you mean `optim.beta1`"},
           {"--set data.global_batch=9", "9"},
           {"--set 'data.paths=[\"absent.npy\"]'", "absent.npy"},
           {"--set train.steps=1000", "1000"},
           {"--set 'eval.sets=[{name=\"h\",paths=[\"gone.npy\"]}]'", "gone.npy"},
           {"--from-step 3", "available: none"},
           {"--from-step -1", "Value -1 not in range 0 to 9223372036854775807"},
           {"--plugin nope", "nope"},
           {"--accept optim.bta1", "did you mean `optim.beta1`"},
           {"--set train.start_from=absent", "absent"}}) {
    const Output output = Run("bad", more);
    EXPECT_EQ(output.exit_code, 2) << more << output.text;
    EXPECT_THAT(output.text, HasSubstr(text)) << more;
    EXPECT_EQ(RunShell("ls " + (Folder("bad") / "metrics.jsonl").string()).exit_code, 2) << more;
  }
}

}  // namespace
}  // namespace ulmus::apps
