#include "optim/param_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ulmus::optim {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kNames = {
    "lm_head.weight", "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
    "model.layers.0.self_attn.q_norm.weight", "model.norm.weight"};

// B32 of the public cases.
TEST(ParamGroups, OnlyTheEmbeddingOfOlmo3DoesNotDecay) {
  const auto rates = *AssignParamGroups(kNames, Olmo3ParamGroups(), 0.1);
  for (size_t i = 0; i < kNames.size(); ++i) {
    EXPECT_EQ(rates[i].weight_decay, kNames[i] == "model.embed_tokens.weight" ? 0 : 0.1)
        << kNames[i];
    EXPECT_EQ(rates[i].lr_factor, 1);
  }
}

TEST(ParamGroups, PatternsHaveStarsAndQuestionMarks) {
  EXPECT_TRUE(MatchesPattern("*norm*", "model.norm.weight"));
  EXPECT_TRUE(MatchesPattern("model.layers.?.*.weight", "model.layers.3.mlp.up_proj.weight"));
  EXPECT_FALSE(MatchesPattern("model.layers.?.*.weight", "model.layers.13.mlp.up_proj.weight"));
  EXPECT_TRUE(MatchesPattern("**", ""));
  EXPECT_TRUE(MatchesPattern("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(MatchesPattern("a*b*c", "a-b-b"));
  EXPECT_FALSE(MatchesPattern("norm", "model.norm.weight"));
  EXPECT_FALSE(MatchesPattern("", "x"));
  EXPECT_TRUE(MatchesPattern("*a*a*a*a*a*b", std::string(2000, 'a') + "b"));
}

TEST(ParamGroups, MistakesAreRefused) {
  const auto message = [](std::vector<ParamGroup> groups) {
    const auto rates = AssignParamGroups(kNames, groups, 0.1);
    EXPECT_EQ(rates.status().code(), StatusCode::kInvalidArgument);
    return rates.status().message();
  };
  EXPECT_THAT(message({{.patterns = {"model.embed_token.weight"}}}),
              testing::AllOf(HasSubstr("matches none of 5 tensors"),
                             HasSubstr("did you mean 'model.embed_tokens.weight'?")));
  EXPECT_THAT(message({{.patterns = {"*norm*"}}, {.patterns = {"model.norm.weight"}}}),
              HasSubstr("belongs to groups 0 and 1"));
  EXPECT_THAT(message({{.patterns = {"*"}, .weight_decay = -1}}), HasSubstr("weight_decay = -1"));
  EXPECT_THAT(message({{.patterns = {"*"}, .lr_factor = -1}}), HasSubstr("lr_factor = -1"));
}

}  // namespace
}  // namespace ulmus::optim
