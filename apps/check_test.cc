// `ulmus check` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/testing/run_program.h"
#include "base/file.h"

namespace ulmus::apps {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class Check : public testing::Test {
 protected:
  // `count` tokens of documents of 50, as the preset `tiny` reads them.
  std::string Tokens(const std::string& name, int64_t count, int64_t bytes_each = 4) {
    const Path path = dir_.path() / name;
    std::ofstream out(path, std::ios::binary);
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t id = i % 50 == 49 ? 4094 : static_cast<uint64_t>(i * 7919 % 4000);
      out.write(reinterpret_cast<const char*>(&id), bytes_each);
    }
    return path.string();
  }
  std::string Recipe(const std::string& text) {
    const Path path = dir_.path() / "run.toml";
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  // A recipe upon `tiny` with 100 instances.
  std::string Good(const std::string& more = "") {
    return Recipe(fmt::format("preset = \"tiny\"\n{}\n[data]\npaths = [\"{}\"]\n", more,
                              Tokens("a.npy", 12800)));
  }
  static json Report(const std::string& arguments, int expected_exit_code) {
    const Output output =
        RunShell(fmt::format("({} check {} --json 2>/dev/null)", ULMUS_PROGRAM, arguments));
    EXPECT_EQ(output.exit_code, expected_exit_code) << arguments << "\n" << output.text;
    json report = json::parse(output.text, nullptr, false);
    EXPECT_TRUE(report.is_object()) << output.text;
    return report;
  }
  // The only error of the recipe.
  static json Error(const std::string& arguments, int expected_exit_code = kExitUsage) {
    const json report = Report(arguments, expected_exit_code);
    EXPECT_EQ(report["holds"], false);
    EXPECT_EQ(report["errors"].size(), 1u) << report["errors"].dump(1);
    return report["errors"].empty() ? json() : report["errors"][0];
  }
  static std::string Message(const std::string& arguments) {
    return Error(arguments).value("message", "");
  }
  TempDir dir_;
};

TEST_F(Check, SaysWhatIsKnownOfARunThatHolds) {
  const json report = Report(Good(), kExitOk);
  EXPECT_EQ(report["holds"], true);
  EXPECT_EQ(report["errors"], json::array());
  EXPECT_EQ(report["params"], 721856);
  EXPECT_EQ(report["state_bytes"], 12 * 721856);
  EXPECT_GT(report["memory_bytes"], report["state_bytes"]);
  EXPECT_EQ(report["memory"]["total"], report["memory_bytes"]);
  EXPECT_EQ(report["last_step"], 100);
  EXPECT_EQ(report["data"]["instances"], 100);
  EXPECT_EQ(report["flops_per_token"].size(), 3u);
  EXPECT_EQ(report["disk"]["checkpoints"], 2);
  EXPECT_NEAR(report["learning_rates"][0]["lr"], 3e-4, 1e-15);
  EXPECT_EQ(report["learning_rates"].back()["step"], 100);
  EXPECT_NEAR(report["learning_rates"].back()["lr"], 3e-4, 1e-15);
}

TEST_F(Check, PrintsTablesForReaders) {
  const Output output = RunUlmus("check " + Good() + " --init-table");
  EXPECT_EQ(output.exit_code, kExitOk);
  EXPECT_THAT(output.text,
              AllOf(HasSubstr("parameters    721856"), HasSubstr("activations"),
                    HasSubstr("model.layers.*.mlp.up_proj.weight"), HasSubstr("end of warm-up"),
                    HasSubstr("FLOPs/token"), HasSubstr("model.layers.3.mlp.up_proj.weight"),
                    HasSubstr("run.toml: holds")));
}

// The published sizes, from the preset's name alone: nothing is trained by it, so files may come
// later.
TEST_F(Check, TakesPresetsByName) {
  json report = Report("olmo3_7b_stage1", kExitOk);
  EXPECT_EQ(report["params"], 7298011136);
  EXPECT_EQ(report["params_with_padding"], 7298617344);
  EXPECT_EQ(report["state_bytes"], 12 * 7298617344);
  EXPECT_EQ(report["last_step"], 1413814);
  EXPECT_EQ(report["flops_per_token"]["olmo_core"], 49376944128.0);
  EXPECT_EQ(report["flops_per_token"]["maxtext"], 47762915328.0);
  EXPECT_THAT(report["warnings"].dump(), HasSubstr("names no token files"));
  report = Report("olmo3_32b_stage3", kExitOk);
  EXPECT_EQ(report["params"], 32233522176);
  EXPECT_THAT(report["warnings"].dump(), HasSubstr("train.start_from"));
}

TEST_F(Check, GroupsShowInTheTableOfParameters) {
  const json rows = Report(Good(), kExitOk)["parameters"];
  for (const json& row : rows) {
    const bool embedding = row["name"] == "model.embed_tokens.weight";
    EXPECT_EQ(row["weight_decay"], embedding ? 0.0 : 0.1) << row.dump();
    EXPECT_EQ(row["lr_factor"], 1.0);
  }
  const json two = Report(Good("[[optim.groups]]\npatterns = [\"*_norm.weight\"]\n"
                               "weight_decay = 0.0\nlr_factor = 0.5\n"),
                          kExitOk)["parameters"];
  for (const json& row : two) {
    const bool norm = row["name"].get<std::string>().ends_with("_norm.weight");
    EXPECT_EQ(row["lr_factor"], norm ? 0.5 : 1.0) << row.dump();
  }
  EXPECT_THAT(
      Message(Good("[[optim.groups]]\npatterns = [\"*.q_nrm.weight\"]\nweight_decay = 0.0")),
      AllOf(HasSubstr("'*.q_nrm.weight' matches none of 47 tensors")));
}

TEST_F(Check, ReportsAllErrorsOfARecipeAtOnce) {
  const std::string recipe = Recipe(
      "preset = \"tiny\"\n[train]\nstpes = 3\nmicrobatches = -2\ndtype = \"float64\"\n"
      "[optim]\nbeta1 = \"0.9\"\n[modle]\nnum_layers = 3\n");
  const json report = Report(recipe, kExitUsage);
  std::vector<std::string> keys;
  for (const json& error : report["errors"]) {
    keys.push_back(error["key"]);
    EXPECT_THAT(error["origin"].get<std::string>(), HasSubstr("run.toml:"));
  }
  EXPECT_THAT(keys, testing::UnorderedElementsAre("train.stpes", "train.microbatches",
                                                  "train.dtype", "optim.beta1", "modle"));
  EXPECT_THAT(report["errors"].dump(),
              AllOf(HasSubstr("did you mean `train.steps`"), HasSubstr("remove the quotes")));
  EXPECT_EQ(report["params"], json());  // unknown, but there
  const Output output = RunUlmus("check " + recipe);
  EXPECT_EQ(output.exit_code, kExitUsage);
  EXPECT_THAT(output.text, HasSubstr("run.toml:3:1: unknown key `train.stpes`"));
}

// B49: what a text can be that is no recipe, and keys that are given twice.
TEST_F(Check, RefusesTextsThatAreNoRecipe) {
  EXPECT_THAT(Message(Recipe("preset = \"tiny\"\n[train]\nsteps = 3\nsteps = 4\n")),
              HasSubstr("steps"));
  EXPECT_THAT(Message(Recipe("preset = \"tiny\"\n[train]\nsteps = null\n")), Not(IsEmpty()));
  EXPECT_THAT(Message(Recipe(std::string("preset = \"tiny\"\n\0[train]\n", 26))), Not(IsEmpty()));
  EXPECT_THAT(Message(Recipe(std::string(2 << 20, '#'))), HasSubstr("1048576"));
  EXPECT_THAT(Message(Recipe("preset = \"tinny\"\n")), HasSubstr("did you mean \"tiny\""));
  EXPECT_THAT(Message(dir_.path().string()), HasSubstr("directory"));
  EXPECT_THAT(Message((dir_.path() / "none.toml").string()), HasSubstr("No such file"));
  EXPECT_THAT(Message("/dev/zero"), Not(IsEmpty()));
  EXPECT_THAT(Message(Good() + " --set train.steps=1 --set train.steps=2"),
              HasSubstr("given by another flag"));
  EXPECT_EQ(RunUlmus("check").exit_code, kExitUsage);
  EXPECT_EQ(RunUlmus("check " + Good() + " --devices 0").exit_code, kExitUsage);
}

TEST_F(Check, RefusesDataThatIsNotWhatTheRecipeSays) {
  const std::string good = Good();
  const auto message = [&](const std::string& path, int exit_code = kExitUsage) {
    const json error = Error(fmt::format("{} --set 'data.paths=[\"{}\"]'", good, path), exit_code);
    EXPECT_EQ(error["key"], "data.paths");
    EXPECT_THAT(error["origin"].get<std::string>(), HasSubstr("--set data.paths="));
    return error["message"].get<std::string>();
  };
  EXPECT_THAT(message((dir_.path() / "gone.npy").string()), HasSubstr("gone.npy"));
  EXPECT_THAT(message(Tokens("u16.npy", 12800, 2), kExitDataLoss),
              AllOf(HasSubstr("u16.npy"), HasSubstr("u16")));
  {
    std::ofstream(dir_.path() / "cut.npy") << "abcde";
    EXPECT_THAT(message((dir_.path() / "cut.npy").string(), kExitDataLoss), HasSubstr("cut.npy"));
  }
  EXPECT_THAT(message(dir_.path().string()), HasSubstr(dir_.path().string()));
  EXPECT_THAT(Message(Recipe("preset = \"tiny\"\n")), HasSubstr("data.paths"));
  const json error = Error(
      Good() + " --set 'eval.sets=[{name = \"h\", paths = [\"gone.npy\"]}]' --set eval.every=5");
  EXPECT_EQ(error["key"], "eval.sets[0].paths");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("gone.npy"));
}

// AI-Hypercomputer/maxtext#914, mosaicml/llm-foundry#1370 and #549: where data end is settled, with
// the numbers, before anything runs.
TEST_F(Check, SaysWhereDataEnd) {
  const std::string stop = Good() + " --set data.end=stop";
  const json error = Error(stop);
  EXPECT_EQ(error["key"], "train.steps");
  EXPECT_THAT(error["message"].get<std::string>(),
              AllOf(HasSubstr("100 steps"), HasSubstr("after 12 of 8 instances"),
                    HasSubstr("data.end = \"wrap\"")));
  EXPECT_EQ(Report(stop + " --set train.steps=0", kExitOk)["last_step"], 12);
  EXPECT_EQ(Report(Good() + " --set train.steps=0 --set data.end=pad", kExitOk)["last_step"], 13);
  EXPECT_EQ(Report(stop + " --set train.steps=0", kExitOk)["data"]["left_over"], 4);
  EXPECT_THAT(Message(Good() + " --set train.steps=0"), HasSubstr("never end"));
  const auto few = [&](int64_t tokens, const std::string& more = "") {
    return Message(
        fmt::format("{} --set 'data.paths=[\"{}\"]' {}", stop, Tokens("few.npy", tokens), more));
  };
  EXPECT_THAT(few(5 * 128), AllOf(HasSubstr("5"), HasSubstr("8")));  // no full batch
  EXPECT_THAT(few(100), HasSubstr("instance"));                      // no instance
  EXPECT_THAT(few(0), HasSubstr("0 tokens"));                        // no token
  EXPECT_THAT(few(128, "--set mesh.data=4 --devices 4"), AllOf(HasSubstr("1"), HasSubstr("8")));
}

// B50: AI-Hypercomputer/maxtext#4123.
TEST_F(Check, PrintsTheEquationThatDoesNotHold) {
  const std::string good = Good();
  EXPECT_THAT(Message(good + " --set mesh.tensor=4 --set mesh.data=0 --devices 6"),
              HasSubstr("6 devices % (tensor=4) = 2"));
  EXPECT_THAT(Message(good + " --set mesh.data=4 --set data.global_batch=10"),
              HasSubstr("10 % (data=4) = 2"));
  EXPECT_THAT(Message(good + " --set mesh.context=3"), HasSubstr("128 % (context=3) = 2"));
  EXPECT_THAT(Message(good + " --set mesh.data=0 --devices 16"), HasSubstr("8 % (data=16) = 8"));
  EXPECT_EQ(Report(good + " --set mesh.data=0 --devices 4", kExitOk)["mesh"], "data=4");
  EXPECT_EQ(Report(good, kExitOk)["mesh"], "data=1");
  const json eval = Error(good +
                          " --set mesh.data=4 --set eval.batch=6 --set eval.every=9 --set "
                          "'eval.sets=[{name = \"h\", paths = [\"" +
                          Tokens("h.npy", 500) + "\"]}]'");
  EXPECT_EQ(eval["key"], "eval.batch");
  EXPECT_THAT(eval["message"].get<std::string>(), HasSubstr("6 % (data=4) = 2"));
}

TEST_F(Check, CountsTheDiskThatCheckpointsNeed) {
  const std::string many = Good() +
                           " --set train.steps=1000000000 --set checkpoint.every=1 --set "
                           "checkpoint.keep_last=0";
  const json error = Error(many + " --run-dir " + (dir_.path() / "not/yet").string());
  EXPECT_EQ(error["key"], "checkpoint.keep_last");
  EXPECT_THAT(error["message"].get<std::string>(),
              AllOf(HasSubstr("1000000000 checkpoints * 8662272 bytes"), HasSubstr("are free")));
  // Nobody said that it will be this disk.
  EXPECT_THAT(Report(many, kExitOk)["warnings"].dump(), HasSubstr("are free"));
}

TEST_F(Check, RefusesARunDirectoryThatCannotBeMade) {
  const std::string good = Good();
  const std::string file = Tokens("file", 10);
  for (const std::string& path : {file, file + "/below"}) {
    const json error = Error(good + " --run-dir " + path);
    EXPECT_EQ(error["key"], "--run-dir");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("file is no directory"));
  }
  EXPECT_EQ(Report(good + " --run-dir " + (dir_.path() / "not/yet").string(), kExitOk)["holds"],
            true);
  // Permissions do not bind the superuser.
  const Path closed = dir_.path() / "closed";
  ASSERT_EQ(RunShell(fmt::format("mkdir -m 555 {}; chmod 755 {}", closed, dir_.path())).exit_code,
            0);
  const std::string user = geteuid() == 0 ? "setpriv --reuid=65534 --clear-groups " : "";
  const Output output =
      RunShell(fmt::format("{}{} check {} --run-dir {}/run", user, ULMUS_PROGRAM, good, closed));
  EXPECT_EQ(output.exit_code, kExitUsage) << output.text;
  EXPECT_THAT(output.text, HasSubstr("closed: cannot write there: Permission denied"));
}

TEST_F(Check, HoldsMemoryAgainstTheDeviceThatIsNamed) {
  const std::string large = "olmo3_7b_stage1 --set mesh.fsdp=";
  const json fits = Report(large + "128 --set train.remat=full --device 'TPU v5p'", kExitOk);
  EXPECT_EQ(fits["fits"], true);
  EXPECT_EQ(fits["device_bytes"], 102'700'000'000);
  // 87.6 GB of state on two devices of 33.5 GB.
  const json error = Error(large + "2 --device 'TPU v6e'");
  EXPECT_EQ(error["key"], "mesh.fsdp");
  EXPECT_THAT(error["message"].get<std::string>(),
              AllOf(HasSubstr("TPU v6e has 33500000000"), HasSubstr("train.microbatches")));
  // The state alone fits; what a compiler for this device needs beside it is not known.
  const json close = Report(large + "64 --set train.remat=none --device 'TPU v5p'", kExitOk);
  EXPECT_EQ(close["fits"], json());
  EXPECT_THAT(close["warnings"].dump(), HasSubstr("cannot be told"));
  const json other = Report(large + "64 --device abacus", kExitOk);
  EXPECT_EQ(other["fits"], json());
  EXPECT_THAT(other["warnings"].dump(), AllOf(HasSubstr("abacus"), HasSubstr("TPU v5p")));
}

// Its devices are threads that share one memory.
TEST_F(Check, HoldsMemoryAgainstThisMachine) {
  const std::string good = Good();
  const json one = Report(good + " --device cpu", kExitOk);
  EXPECT_EQ(one["fits"], true);
  const json four = Report(good + " --device cpu --set mesh.fsdp=4", kExitOk);
  EXPECT_NEAR(four["device_bytes"].get<double>(), one["device_bytes"].get<double>() / 4, 1);
  const std::string huge = " --set data.global_batch=8192 --set data.sequence_length=131072 ";
  EXPECT_EQ(Error("tiny" + huge + "--device cpu")["key"], "mesh.fsdp");
  // Nobody said that it will be this machine.
  const json unnamed = Report("tiny" + huge, kExitOk);
  EXPECT_EQ(unnamed["fits"], json());
  EXPECT_THAT(unnamed["warnings"].dump(), HasSubstr("--device names the kind"));
}

TEST_F(Check, WarnsOfWhatHasCostRunsTheirQuality) {
  const std::string warnings =
      Report(Good() +
                 " --set optim.moments=bfloat16 --set eval.every=5 --set "
                 "model.max_position_embeddings=64 --set checkpoint.every=0 --set "
                 "optim.step_increment_bugfix=false --set train.steps=50",
             kExitOk)["warnings"]
          .dump();
  EXPECT_THAT(warnings, AllOf(HasSubstr("0.93 higher"), HasSubstr("nothing is held out"),
                              HasSubstr("128 > model.max_position_embeddings = 64"),
                              HasSubstr("on SIGTERM or SIGINT only"), HasSubstr("2.236 times"),
                              HasSubstr("ends at 50 steps, the cosine curve at 100")));
}

TEST_F(Check, OpensWhatTheRunStartsFrom) {
  const std::string good = Good();
  const json error = Error(good + " --set train.start_from=nowhere");
  EXPECT_EQ(error["key"], "train.start_from");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("nowhere"));
  EXPECT_THAT(Message(good + " --set train.start_with=weights_and_moments"),
              HasSubstr("without train.start_from"));
  EXPECT_THAT(Message("reference_run --set model.num_layers=4"), HasSubstr("locked at 8"));
}

TEST_F(Check, SaysWhatMakesTheFilesOfTheDemo) {
  for (const char* command : {"check", "train"}) {
    const Output output =
        RunShell(fmt::format("cd {} && {} {} demo", dir_.path(), ULMUS_PROGRAM, command));
    EXPECT_EQ(output.exit_code, kExitUsage) << output.text;
    EXPECT_THAT(output.text, AllOf(HasSubstr("train-00000.npy"), HasSubstr("`make demo`")));
  }
  // Files of one's own under the same recipe are not its to make.
  EXPECT_THAT(
      Message("demo --set eval.every=0 --set 'eval.sets=[]' --set 'data.paths=[\"x.npy\"]'"),
      Not(HasSubstr("make demo")));
}

TEST_F(Check, HelpShowsAnExampleAndThePresets) {
  const Output output = RunUlmus("check --help");
  EXPECT_EQ(output.exit_code, kExitOk);
  EXPECT_THAT(output.text, AllOf(HasSubstr("Example: ulmus check"), HasSubstr("olmo3_7b_stage1"),
                                 HasSubstr("--json")));
}

}  // namespace
}  // namespace ulmus::apps
