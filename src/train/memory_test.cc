#include "train/memory.h"

#include <gtest/gtest.h>

#include "nn/olmo3/parameters.h"
#include "nn/olmo3/remat.h"
#include "train/run_config.h"

namespace ulmus::train {
namespace {

RunConfig ConfigOf(std::string_view name, std::vector<std::string> flags = {}) {
  const auto recipe = ResolveRun(name, std::move(flags));
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  auto config = ConfigFromRecipe(*recipe);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *std::move(config);
}

MemoryEstimate EstimateOf(std::string_view name, std::vector<std::string> flags = {},
                          const Mesh& mesh = {}) {
  const RunConfig config = ConfigOf(name, std::move(flags));
  return EstimateMemory(config.model, config.step_options(), mesh);
}

TEST(Memory, StateIsTwelveBytesPerWeight) {
  for (const char* name : {"tiny", "reference_run", "olmo3_7b_stage1", "olmo3_32b_stage1"}) {
    const int64_t weights = CountParameters(ConfigOf(name).model, /*padded=*/true).total;
    EXPECT_EQ(EstimateOf(name).state(), 12 * weights) << name;
    EXPECT_EQ(EstimateOf(name).weights, 4 * weights) << name;
  }
  EXPECT_EQ(EstimateOf("tiny", {"optim.moments=bfloat16"}).state(), 8 * 721856);
}

TEST(Memory, FsdpCutsTheState) {
  const int64_t whole = EstimateOf("olmo3_7b_stage1").state();
  const MemoryEstimate cut = EstimateOf("olmo3_7b_stage1", {}, Mesh({{"fsdp", 64}}));
  EXPECT_NEAR(static_cast<double>(cut.state()), static_cast<double>(whole) / 64,
              static_cast<double>(whole) * 1e-3);  // norms stay whole
  EXPECT_EQ(cut.batch, EstimateOf("olmo3_7b_stage1").batch / 64);
}

TEST(Memory, BatchIsWhatIsSent) {
  EXPECT_EQ(EstimateOf("tiny").batch, 8 * 128 * 5);
  EXPECT_EQ(EstimateOf("tiny", {"data.document_mask=true"}).batch, 8 * 128 * 9);
}

// What policies are for.
TEST(Memory, KeepingLessNeedsLess) {
  const auto activations = [&](const std::string& remat) {
    return EstimateOf("reference_run", {"train.microbatches=1", "train.remat=" + remat})
        .activations;
  };
  EXPECT_LT(activations("full_group"), activations("full"));
  EXPECT_LT(activations("full"), activations("save_attention"));
  EXPECT_LT(activations("save_attention"), activations("save_qkv_attention"));
  EXPECT_LT(activations("save_qkv_attention"), activations("save_dots"));
  EXPECT_LT(activations("save_dots"), activations("none"));
  for (const std::string& remat : nn::olmo3::RematNames()) EXPECT_GT(activations(remat), 0);
}

TEST(Memory, MicrobatchesCutActivations) {
  EXPECT_LT(EstimateOf("reference_run").activations * 3,
            EstimateOf("reference_run", {"train.microbatches=1"}).activations);
}

}  // namespace
}  // namespace ulmus::train
