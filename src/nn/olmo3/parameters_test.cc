#include "nn/olmo3/parameters.h"

#include <gtest/gtest.h>

#include <set>

namespace ulmus::nn::olmo3 {
namespace {

Config Preset(const char* name) {
  Result<Config> config = ConfigByName(name);
  CHECK(config.ok(), "{}", config.status().ToString());
  return *config;
}

TEST(Parameters, CountsAreThePublishedOnes) {
  EXPECT_EQ(CountParameters(Preset("7b")).total, 7'298'011'136);
  EXPECT_EQ(CountParameters(Preset("7b"), /*padded=*/true).total, 7'298'617'344);
  EXPECT_EQ(CountParameters(Preset("32b")).total, 32'233'522'176);
  EXPECT_EQ(CountParameters(Preset("32b"), /*padded=*/true).total, 32'234'279'936);
  EXPECT_EQ(CountParameters(Preset("7b")).non_embedding(), 7'298'011'136 - 100278 * 4096);
}

TEST(Parameters, NumberOfTensorsAndStacks) {
  EXPECT_EQ(HfTensors(Preset("7b")).size(), 355u);
  EXPECT_EQ(HfTensors(Preset("32b")).size(), 707u);
  EXPECT_EQ(Parameters(Preset("7b")).size(), 47u);
}

TEST(Parameters, HeadLayoutLeavesTheCount) {
  Config config = Preset("7b");
  config.num_heads = config.num_kv_heads = 16;
  config.head_dim = 256;
  EXPECT_EQ(CountParameters(config).total, 7'298'011'136);
}

// Every weight of every parameter belongs to exactly one Hugging Face tensor, padding aside.
void ExpectTableIsComplete(const Config& config) {
  const auto specs = Parameters(config);
  std::vector<std::set<int64_t>> groups(specs.size());
  std::set<std::string> names;
  int64_t elements = 0;
  for (const HfTensor& tensor : HfTensors(config)) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    const ParameterSpec& spec = specs[static_cast<size_t>(tensor.parameter)];
    EXPECT_TRUE(groups[static_cast<size_t>(tensor.parameter)].insert(tensor.group).second);
    EXPECT_EQ(spec.hf_names[static_cast<size_t>(std::max<int64_t>(tensor.group, 0))], tensor.name);
    EXPECT_EQ(spec.stacked, tensor.group >= 0);
    Dims dims = spec.type.shape.dims();
    if (spec.stacked) dims.erase(dims.begin());
    dims[0] -= tensor.padding_rows;
    EXPECT_EQ(Shape(dims), tensor.shape) << tensor.name;
    elements += tensor.shape.num_elements() + tensor.padding_rows * config.hidden_size;
  }
  int64_t expected = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(groups[i].size(), specs[i].hf_names.size()) << specs[i].name;
    EXPECT_EQ(specs[i].axes.size(), static_cast<size_t>(specs[i].type.shape.rank()));
    expected += specs[i].type.shape.num_elements();
  }
  EXPECT_EQ(elements, expected);
}

TEST(Parameters, TableCoversEveryWeightOnce) {
  for (const ConfigPreset& preset : ConfigPresets()) ExpectTableIsComplete(preset.make());
  for (const int64_t layers : {1, 3, 4, 5, 8, 11}) {
    for (const bool last_full : {false, true}) {
      for (const bool tied : {false, true}) {
        Config config = Preset("14m");
        config.num_layers = layers;
        config.last_layer_full = last_full;
        config.tie_word_embeddings = tied;
        config.num_kv_heads = 2;
        ExpectTableIsComplete(config);
      }
    }
  }
}

// allenai/OLMoE#26: gains span the full projected width, so with fewer key-value heads those of q
// and k differ in shape and cannot be swapped unseen.
TEST(Parameters, QkNormGainsSpanTheirProjections) {
  Config config = *ConfigByName("7b");
  config.num_kv_heads = config.num_heads / 4;
  int64_t found = 0;
  for (const HfTensor& tensor : HfTensors(config)) {
    const bool q = tensor.name.ends_with("self_attn.q_norm.weight");
    if (!q && !tensor.name.ends_with("self_attn.k_norm.weight")) continue;
    const int64_t heads = q ? config.num_heads : config.num_kv_heads;
    EXPECT_EQ(tensor.shape, (Shape{heads * config.head_dim})) << tensor.name;
    ++found;
  }
  EXPECT_EQ(found, 2 * config.num_layers);
}

TEST(Parameters, ATiedHeadHasNoTensor) {
  Config config = Preset("14m");
  config.tie_word_embeddings = true;
  for (const HfTensor& tensor : HfTensors(config)) EXPECT_NE(tensor.name, "lm_head.weight");
  for (const ParameterSpec& spec : Parameters(config)) EXPECT_NE(spec.kind, TensorKind::kHead);
}

TEST(Parameters, OnlyTheEmbeddingIsFreeOfWeightDecay) {
  for (const ParameterSpec& spec : Parameters(Preset("7b"))) {
    EXPECT_EQ(spec.weight_decay, spec.kind != TensorKind::kEmbedding) << spec.name;
  }
}

TEST(Parameters, AForcedLastLayerStandsAlone) {
  Config config = Preset("14m");
  config.layer_pattern = {LayerType::kSliding};
  config.last_layer_full = true;  // sliding x 3, full
  const LayerGroups groups = GroupLayers(config);
  EXPECT_EQ(groups.num_groups, 3);
  EXPECT_EQ(groups.num_single, 1);
}

}  // namespace
}  // namespace ulmus::nn::olmo3
