// `ulmus generate` and `ulmus parity` from outside, with the tiny model of the golden file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/testing/run_program.h"
#include "infer/testing/tiny_checkpoint.h"
#include "pjrt/testing.h"

namespace ulmus::apps {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class InferCommands : public testing::Test {
 protected:
  void SetUp() override {
    if (pjrt::InstalledCpuPlugins().empty())
      GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
    const auto config = nn::olmo3::LoadGolden().config;
    infer::WriteTinyCheckpoint(model_, config, infer::TinyWeights(config));
  }
  TempDir temp_;
  Path model_ = temp_.path() / "model";
};

TEST_F(InferCommands, ParityHoldsAgainstTheGoldenLogitsAndNotAgainstOthers) {
  const Path file = temp_.path() / "logits.safetensors";
  infer::WriteGoldenLogits(file, "default");
  const Output good =
      RunUlmusForJson("parity " + model_.string() + " --against " + file.string() + " --json");
  const json report = json::parse(good.text, nullptr, false);
  ASSERT_TRUE(report.is_object()) << good.text;
  EXPECT_EQ(good.exit_code, 0);
  EXPECT_EQ(report["positions"], 12);
  EXPECT_EQ(report["top1_agreement"], 1.0);
  EXPECT_LT(report["kl_mean"], 1e-6);
  EXPECT_LT(report["kl_max"], 1e-6);
  EXPECT_LT(report["max_abs_diff"], 5e-5);  // what the golden file asks of float32
  EXPECT_EQ(report["holds"], true);

  infer::WriteGoldenLogits(file, "yarn_full_attention_only");
  const Output bad =
      RunUlmusForJson("parity " + model_.string() + " --against " + file.string() + " --json");
  EXPECT_EQ(bad.exit_code, 4);
  EXPECT_EQ(json::parse(bad.text, nullptr, false)["holds"], false);
}

TEST_F(InferCommands, ParityOfTwoCheckpointsNamesTheFirstDivergentTensor) {
  const auto config = nn::olmo3::LoadGolden().config;
  auto weights = infer::TinyWeights(config);
  HostTensor& up = weights.at("model.layers.1.mlp.up_proj.weight");
  for (int64_t i = 0; i < up.num_elements(); i += 3) up.Set(i, -up.Get(i));
  const Path other = temp_.path() / "other";
  infer::WriteTinyCheckpoint(other, config, std::move(weights));
  const std::string pair = model_.string() + " --against " + other.string() + " --length 16";
  const Output bad = RunUlmusForJson("parity " + pair + " --json");
  EXPECT_EQ(bad.exit_code, 4);
  EXPECT_EQ(json::parse(bad.text, nullptr, false)["first_divergent"], "layers.1.mlp") << bad.text;
  const Output same = RunUlmusForJson("parity " + model_.string() + " --against " +
                                      model_.string() + " --ids '1 2 3' --json");
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_EQ(json::parse(same.text, nullptr, false)["max_abs_diff"], 0.0);
}

TEST_F(InferCommands, ParityOfLogitsThatAreNotFiniteHasNoFigures) {
  const auto config = nn::olmo3::LoadGolden().config;
  auto weights = infer::TinyWeights(config);
  weights.at("model.layers.2.mlp.down_proj.weight").Set(0, std::nan(""));
  const Path broken = temp_.path() / "broken";
  infer::WriteTinyCheckpoint(broken, config, std::move(weights));
  const std::string command =
      "parity " + broken.string() + " --against " + model_.string() + " --ids '1 2 3'";
  const Output text = RunUlmus(command);
  EXPECT_EQ(text.exit_code, 4);
  EXPECT_THAT(text.text,
              HasSubstr("not finite       3 positions, first at sequence 0, position 0"));
  EXPECT_THAT(text.text, HasSubstr("KL               n/a"));
  const Output machine = RunUlmusForJson(command + " --json");
  const json report = json::parse(machine.text, nullptr, false);
  EXPECT_EQ(machine.exit_code, 4);
  EXPECT_EQ(report["kl_mean"], "nan");
  EXPECT_EQ(report["max_abs_diff"], "nan");
  EXPECT_EQ(report["nonfinite"], 3);
  EXPECT_EQ(report["first_nonfinite"]["position"], 0);
  EXPECT_EQ(report["first_divergent"], "layers.2.mlp") << machine.text;
  EXPECT_EQ(report["holds"], false);
}

TEST_F(InferCommands, ParityComparesTheBeginningThatIsAskedForAndNoMoreThanThereIs) {
  const Path file = temp_.path() / "logits.safetensors";
  const int64_t D = nn::olmo3::LoadGolden().config.hidden_size;
  std::map<std::string, HostTensor> more;
  more.emplace("final_norm", HostTensor(TensorType{DType::kF32, {1, 12, D}}));
  infer::WriteGoldenLogits(file, "default", std::move(more));
  const std::string stored = "parity " + model_.string() + " --against " + file.string();
  const std::string random = "parity " + model_.string() + " --against " + model_.string();
  const Output part = RunUlmusForJson(stored + " --length 5 --json");
  const json report = json::parse(part.text, nullptr, false);
  ASSERT_TRUE(report.is_object()) << part.text;
  EXPECT_EQ(report["positions"], 5);
  EXPECT_LT(report["kl_max"], 1e-6);
  // Zeros, compared row by row with the beginning.
  EXPECT_EQ(report["first_divergent"], "final_norm");
  EXPECT_EQ(report["intermediates"][0]["first"]["position"], 0);
  const struct {
    std::string arguments;
    const char* message;
  } rows[] = {
      {stored + " --length 13", "has 1 of 12 tokens; ask for no more"},
      {stored + " --sequences 2", "--sequences 2: "},
      {random + " --tokens " + file.string() + " --length 13", "has 1 of 12 tokens"},
      {random + " --ids '1 2 3' --length 4", "--ids has 1 of 3 tokens"},
      {random + " --length 1000000000", "the model's context is"},
      {random + " --length 0", "--length: '0', expected a whole number from 1"},
      {random + " --sequences -1", "--sequences: '-1'"},
      {random + " --kl-max nan", "--kl-max: 'nan', expected a finite number >= 0"},
      {random + " --kl-mean -1", "--kl-mean: '-1'"},
      {random + " --top1 1.01", "--top1: '1.01', expected a number from 0 to 1"},
      {random + " --intermediate-limit inf", "--intermediate-limit: 'inf'"},
  };
  for (const auto& row : rows) {
    const Output output = RunUlmus(row.arguments);
    EXPECT_EQ(output.exit_code, 2) << row.arguments << output.text;
    EXPECT_THAT(output.text, HasSubstr(row.message));
  }
}

TEST_F(InferCommands, GenerateContinuesIdsTheSameWayInAnyBatch) {
  const std::string sampled = " --temperature 1 --seed 7 --max-new-tokens 12 --json";
  const Output both = RunUlmusForJson("generate " + model_.string() +
                                      " --ids '5 15 39' --ids '5,15,39,80,2,9'" + sampled);
  const json report = json::parse(both.text, nullptr, false);
  ASSERT_TRUE(report.is_object()) << both.text;
  EXPECT_EQ(both.exit_code, 0);
  ASSERT_EQ(report["results"].size(), 2u);
  EXPECT_EQ(report["results"][0]["ids"].size(), 12u);
  EXPECT_EQ(report["results"][1]["prompt_tokens"], 6);
  EXPECT_EQ(report["results"][1]["finish"], "length");
  const Output one_by_one =
      RunUlmusForJson("generate " + model_.string() +
                      " --ids '5 15 39' --ids '5,15,39,80,2,9' --batch-size 1" + sampled);
  EXPECT_EQ(json::parse(one_by_one.text, nullptr, false)["results"], report["results"]);
}

TEST_F(InferCommands, MistakesAreNamedBeforeAnythingRuns) {
  const struct {
    const char* arguments;
    const char* message;
    int exit_code;
  } rows[] = {
      {"--prompt hello", "no tokenizer.json beside the weights", 2},
      {"", "give --prompt, --prompt-file or --ids", 2},
      {"--ids ''", "prompt 0 is empty", 2},
      {"--ids '1 x'", "'x' is no token id", 2},
      {"--ids '1 97'", "token id 97 is outside the vocabulary, 0 to 96", 2},
      {"--ids 1 --top-p 0", "top_p is 0", 2},
      {"--ids 1 --stop ''", "--stop is empty", 2},
      {"--ids 1 --top-p 1.5", "top_p is 1.5, expected 0 < top_p <= 1", 2},
      {"--ids 1 --top-p nan", "top_p is nan", 2},
      {"--ids 1 --top-k -1", "--top-k: '-1', expected a whole number from 0", 2},
      {"--ids 1 --temperature -1", "temperature is -1, expected a number >= 0", 2},
      {"--ids 1 --temperature nan", "temperature is nan", 2},
      {"--ids 1 --temperature 1e999", "temperature is inf", 2},
      {"--ids 1 --seed -1", "--seed: '-1', expected a whole number from 0 to 18446744073709551615",
       2},
      {"--ids 1 --seed 18446744073709551616", "--seed: '18446744073709551616'", 2},
      {"--ids 1 --seed 1.5", "--seed: '1.5'", 2},
      {"--ids 1 --batch-size 0", "--batch-size: '0', expected a whole number from 1 to 4096", 2},
      {"--ids 1 --batch-size -2", "--batch-size: '-2'", 2},
      {"--ids 1 --max-new-tokens 0", "--max-new-tokens: '0', expected a whole number from 1", 2},
      {"--ids 1 --max-new-tokens -5", "--max-new-tokens: '-5'", 2},
      {"--ids 1 --max-new-tokens 9223372036854775808", "--max-new-tokens: '9223372036854775808'",
       2},
      {"--ids 1 --dtype f16", "--dtype is 'f16'", 2},
      {"--ids 1 --mesh rows=2", "--mesh: 'rows=2'", 2},
      {"--ids 1 --mesh tensor=2", "97 % (tensor=2) = 1", 2},
  };
  for (const auto& row : rows) {
    const Output output = RunUlmus("generate " + model_.string() + " " + row.arguments);
    EXPECT_EQ(output.exit_code, row.exit_code) << row.arguments << output.text;
    EXPECT_THAT(output.text, HasSubstr(row.message));
  }
}

TEST_F(InferCommands, APromptMustLeaveRoomInTheContext) {
  auto config = nn::olmo3::LoadGolden().config;
  config.max_position_embeddings = 8;
  const Path small = temp_.path() / "small";
  infer::WriteTinyCheckpoint(small, config, infer::TinyWeights(config));
  const Output full = RunUlmus("generate " + small.string() + " --ids '1 2 3 4 5 6 7 8'");
  EXPECT_EQ(full.exit_code, 2) << full.text;
  EXPECT_THAT(full.text, HasSubstr("shorten it to at most 7"));
  const Output fits =
      RunUlmusForJson("generate " + small.string() + " --ids '1 2 3 4 5 6 7' --json");
  EXPECT_EQ(fits.exit_code, 0) << fits.text;
  EXPECT_EQ(json::parse(fits.text, nullptr, false)["results"][0]["ids"].size(), 1u);
}

}  // namespace
}  // namespace ulmus::apps
