#include "train/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ulmus::train {
namespace {

using testing::HasSubstr;

// B27, too: Adam's count is saved and restored.
TEST(TrainState, ComesBackToTheLastBit) {
  RunState state;
  state.step = 7;
  state.tokens = 7000;
  state.skipped = 2;
  state.skipped_in_a_row = 1;
  state.adam_count = 5;
  state.history.Append(2.0 / 3, 1e-3);
  state.history.Append(0.1, 1.0 / 7);
  data::LoaderState loader;
  loader.step = 7;
  loader.batch_size = 4;
  loader.sequence_length = 250;
  loader.consumed = data::ConsumedIds(0xfedcba9876543210, 28);
  const std::string text = PrintTrainState(state, loader, "abc");
  const auto parsed = ParseTrainState(text, {}, "train_state.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->run.history.losses(), state.history.losses());
  EXPECT_EQ(parsed->run.history.grad_norms(), state.history.grad_norms());
  EXPECT_EQ(parsed->run.consumed, loader.consumed);
  EXPECT_EQ(parsed->recipe_hash, "abc");
  EXPECT_EQ(PrintTrainState(parsed->run, parsed->loader, parsed->recipe_hash), text);
}

TEST(TrainState, DamageIsNamed) {
  RunState state;
  state.step = 3;
  state.skipped = 1;
  const std::string whole = PrintTrainState(state, {}, "abc");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    const auto parsed = ParseTrainState(text, {}, "train_state.json");
    EXPECT_EQ(parsed.status().code(), StatusCode::kDataLoss) << text;
    return parsed.status().message();
  };
  EXPECT_THAT(with("ulmus-train-state-1", "ulmus-train-state-9"), HasSubstr("another version"));
  EXPECT_THAT(with("\"step\": 3", "\"step\": \"3\""), HasSubstr("`step`"));
  EXPECT_THAT(with("\"adam_count\"", "\"adam\""), HasSubstr("`adam_count` is missing"));
  EXPECT_THAT(with("\"skipped\": 1", "\"skipped\": 4"), HasSubstr("do not go together"));
  EXPECT_THAT(with("\"losses\": []", "\"losses\": [null]"), HasSubstr("`losses`"));
  EXPECT_THAT(with("{", "["), HasSubstr("no JSON object"));
}

Recipe Resolve(std::vector<std::string> flags) {
  flags.push_back("data.paths=[\"a.npy\"]");
  auto recipe = ResolveRun("tiny", std::move(flags));
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  return *std::move(recipe);
}

TEST(CheckSameRun, OnlyFreeKeysAndAcceptedOnesMayDiffer) {
  const Recipe before = Resolve({});
  const std::vector<std::string> none;
  EXPECT_TRUE(
      CheckSameRun(before, Resolve({"train.steps=200", "mesh.data=2", "eval.every=5"}), none).ok());
  const Recipe other = Resolve({"optim.beta1=0.8", "data.seed=1"});
  const Status refused = CheckSameRun(before, other, none);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("optim.beta1 was 0.9, is 0.8"));
  EXPECT_THAT(refused.message(), HasSubstr("data.seed"));
  EXPECT_FALSE(CheckSameRun(before, other, std::vector<std::string>{"data.seed"}).ok());
  EXPECT_TRUE(
      CheckSameRun(before, other, std::vector<std::string>{"data.seed", "optim.beta1"}).ok());
}

}  // namespace
}  // namespace ulmus::train
