#include "nn/olmo3/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ulmus::nn::olmo3 {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

// The published 7B's config.json, stage 1.
Json Published7b() {
  Json types = Json::array();
  for (int l = 0; l < 32; ++l) types.push_back(l % 4 == 3 ? "full_attention" : "sliding_attention");
  return {{"architectures", {"Olmo3ForCausalLM"}},
          {"model_type", "olmo3"},
          {"vocab_size", 100278},
          {"hidden_size", 4096},
          {"intermediate_size", 11008},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 32},
          {"max_position_embeddings", 8192},
          {"rope_theta", 500000},
          {"rope_scaling", nullptr},
          {"layer_types", types},
          {"sliding_window", 4096},
          {"rms_norm_eps", 1e-6},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"tie_word_embeddings", false},
          {"initializer_range", 0.02},
          {"pad_token_id", 100277},
          {"bos_token_id", nullptr},
          {"eos_token_id", 100257},
          {"torch_dtype", "bfloat16"},
          {"transformers_version", "4.57.1"},
          {"use_cache", false}};
}

Json YarnJson() {
  return {{"rope_type", "yarn"}, {"factor", 8.0},  {"original_max_position_embeddings", 8192},
          {"beta_fast", 32},     {"beta_slow", 1}, {"attention_factor", 1.2079441541679836}};
}

Config Read(const Json& json) {
  Result<Config> config = ConfigFromHf(json.dump());
  CHECK(config.ok(), "{}", config.status().ToString());
  return *config;
}

Config Preset(std::string_view name) { return *ConfigByName(name); }

TEST(HfConfig, ThePublished7bIsThePreset) {
  Config expected = Preset("7b");
  expected.vocab_multiple = 1;  // exports are not padded
  EXPECT_EQ(Read(Published7b()), expected);
}

TEST(HfConfig, AllFormsOfYarnOnFullAttentionAreTheSame) {
  Json old = Published7b();
  old["rope_scaling"] = YarnJson();
  const Config want = Read(old);
  ASSERT_TRUE(want.yarn);
  EXPECT_EQ(*want.yarn, Yarn{});
  EXPECT_EQ(want.yarn_layers, YarnLayers::kFullAttention);

  Json by_type = Published7b();
  by_type.erase("rope_theta");
  by_type.erase("rope_scaling");
  by_type["rope_parameters"]["full_attention"] = YarnJson();
  by_type["rope_parameters"]["full_attention"]["rope_theta"] = 500000;
  by_type["rope_parameters"]["sliding_attention"] = {{"rope_type", "default"},
                                                     {"rope_theta", 500000.0}};
  EXPECT_EQ(Read(by_type), want);

  Json flat = by_type;
  flat["rope_parameters"] = YarnJson();
  flat["rope_parameters"]["rope_theta"] = 500000;
  EXPECT_EQ(Read(flat), want) << "regressed versions wrote a flat dict for the full layers";

  Json both = by_type;
  both["rope_theta"] = 500000;
  both["rope_scaling"] = YarnJson();
  EXPECT_EQ(Read(both), want);

  Json all = by_type;
  all["rope_parameters"]["sliding_attention"] = by_type["rope_parameters"]["full_attention"];
  EXPECT_EQ(Read(all).yarn_layers, YarnLayers::kAll);
}

TEST(HfConfig, LayerTypesBecomeAPattern) {
  const auto types_of = [](std::string_view letters) {
    Json types = Json::array();
    for (const char c : letters) types.push_back(c == 'f' ? "full_attention" : "sliding_attention");
    return types;
  };
  struct Case {
    const char* letters;
    size_t period;
    bool last_full;
  };
  for (const Case& c :
       {Case{"sssf", 4, false}, Case{"sssfsssfss", 4, false}, Case{"sssfsssfsf", 4, true},
        Case{"ss", 4, false}, Case{"ffff", 1, false}, Case{"sfsfsf", 2, false},
        Case{"ssff", 4, false}, Case{"sffssff", 7, false}}) {
    Json json = Published7b();
    json["layer_types"] = types_of(c.letters);
    json["num_hidden_layers"] = std::string_view(c.letters).size();
    const Config config = Read(json);
    EXPECT_EQ(config.layer_pattern.size(), c.period) << c.letters;
    EXPECT_EQ(config.last_layer_full, c.last_full) << c.letters;
    for (int64_t l = 0; l < config.num_layers; ++l) {
      EXPECT_EQ(config.is_full(l), c.letters[l] == 'f') << c.letters << " layer " << l;
    }
  }
}

TEST(HfConfig, WritesWhatItReads) {
  for (const ConfigPreset& preset : ConfigPresets()) {
    for (const bool yarn : {false, true}) {
      for (const HfForm form : {HfForm::kTransformers4, HfForm::kTransformers5}) {
        Config config = preset.make();
        config.vocab_multiple = 1;
        if (yarn) config.yarn = Yarn{.factor = 4};
        const auto again = ConfigFromHf(ConfigToHf(config, form));
        ASSERT_TRUE(again.ok()) << again.status().ToString();
        EXPECT_EQ(*again, config) << preset.name;
      }
    }
  }
  Config odd = Preset("14m");
  odd.vocab_multiple = 1;
  odd.head_dim = 32;  // not hidden_size / num_heads
  odd.rope_theta = 10000;
  odd.yarn = Yarn{.attention_factor = 1.5};
  odd.yarn_layers = YarnLayers::kAll;
  odd.num_layers = 6;
  odd.last_layer_full = true;
  odd.tie_word_embeddings = true;
  odd.dtype = "float32";
  const auto again = ConfigFromHf(ConfigToHf(odd));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(*again, odd);
}

struct Mistake {
  const char* field;
  Json value;  // discarded: the field is removed
  const char* message;
};

TEST(HfConfig, RefusesByNameWithFoundAndExpected) {
  const Json removed(Json::value_t::discarded);
  const Json yarn_without_beta = {
      {"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}};
  const Mistake mistakes[] = {
      {"model_type", "olmo2", "`model_type` = \"olmo2\"; expected \"olmo3\""},
      {"model_type", removed, "`model_type` is missing"},
      {"architectures", {"LlamaForCausalLM"}, "expected [\"Olmo3ForCausalLM\"]"},
      {"vocab_size", removed, "`vocab_size` is missing"},
      {"eos_token_id", removed, "`eos_token_id` is missing"},
      {"rms_norm_eps", removed, "`rms_norm_eps` is missing"},
      {"tie_word_embeddings", removed, "`tie_word_embeddings` is missing"},
      {"layer_types", removed, "`layer_types` is missing"},
      {"rope_theta", removed, "no rope_theta"},
      {"hidden_size", "4096", "`hidden_size` = \"4096\"; expected a whole number"},
      {"hidden_size", 4096.5, "expected a whole number"},
      {"hidden_size", 0, "hidden_size = 0; expected 1 to"},
      {"hidden_size", -4096, "hidden_size = -4096; expected 1 to"},
      {"hidden_size", 18446744073709551615u, "expected a whole number"},
      {"hidden_size", 1 << 30, "hidden_size = 1073741824; expected 1 to"},
      {"hidden_size", 4100, "hidden_size % num_attention_heads = 4100 % 32"},
      {"num_key_value_heads", 5, "num_heads % num_kv_heads = 32 % 5 = 2"},
      {"num_attention_heads", 0, "is not 0"},
      {"head_dim", 127, "head_dim = 127 is odd"},
      {"hidden_act", "gelu", "`hidden_act` = \"gelu\"; expected \"silu\""},
      {"attention_bias", true, "`attention_bias` = true; expected false"},
      {"attention_dropout", 0.1, "`attention_dropout` = 0.1; expected 0.0"},
      {"sliding_windows", 4096, "did you mean `sliding_window`?"},
      {"quantization_config", Json::object(), "unknown field `quantization_config`"},
      {"num_hidden_layers", 31, "expected num_hidden_layers = 31 strings"},
      {"layer_types", {"chunked_attention"}, "expected num_hidden_layers = 32 strings"},
      {"dtype", "float32", "`dtype` = \"float32\" but `torch_dtype` = \"bfloat16\""},
      {"torch_dtype", "int8", "expected bfloat16, float16 or float32"},
      {"rope_theta", 0.5, "rope_theta = 0.5; expected above 1"},
      {"rope_theta", "x", "`rope_theta` = \"x\"; expected a number"},
      {"rope_scaling",
       {{"rope_type", "linear"}, {"factor", 2}},
       "expected \"default\" or \"yarn\""},
      {"rope_scaling", yarn_without_beta, "`rope_scaling.beta_fast` is missing"},
      {"rope_scaling", "yarn", "expected an object"},
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 10000}},
       "`rope_parameters.rope_theta` = 10000 but another rope_theta is 500000"},
      {"rope_parameters",
       {{"sliding_attention", YarnJson()}},
       "`rope_parameters.full_attention` is missing"},
      {"rope_parameters",
       {{"sliding_attention", YarnJson()}, {"full_attention", {{"rope_type", "default"}}}},
       "or the same YaRN for both"},
      {"pad_token_id", 100278, "pad_token_id = 100278; expected 0 <= id < vocab_size = 100278"},
  };
  for (const Mistake& mistake : mistakes) {
    Json json = Published7b();
    if (mistake.value.is_discarded()) {
      json.erase(mistake.field);
    } else {
      json[mistake.field] = mistake.value;
    }
    const auto config = ConfigFromHf(json.dump(), "some/config.json");
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument) << mistake.field;
    EXPECT_THAT(config.status().message(), HasSubstr(mistake.message));
    EXPECT_THAT(config.status().message(), HasSubstr("some/config.json: "));
  }
}

TEST(HfConfig, RefusesYarnThatContradictsItself) {
  Json json = Published7b();
  json["rope_scaling"] = YarnJson();
  json["rope_parameters"] = {{"rope_type", "default"}};
  EXPECT_THAT(ConfigFromHf(json.dump()).status().message(),
              HasSubstr("expected them to say the same"));
}

TEST(HfConfig, HostileTextsAreErrors) {
  const std::string texts[] = {"",
                               "{",
                               "[]",
                               "null",
                               R"({"model_type": "olmo3", "model_type": "olmo3"})",
                               std::string(100'000, '['),
                               std::string(kMaxHfConfigBytes + 1, ' '),
                               "{\"model_type\": \"\xff\xfe\"}",
                               R"({"model_type": 1e999})"};
  for (const std::string& text : texts) {
    EXPECT_EQ(ConfigFromHf(text).status().code(), StatusCode::kInvalidArgument)
        << text.substr(0, 60);
  }
}

TEST(RecipeConfig, ReadsBackWhatItWrites) {
  std::vector<Config> configs;
  for (const ConfigPreset& preset : ConfigPresets()) configs.push_back(preset.make());
  Config odd = configs[0];
  odd.yarn = Yarn{.factor = 4, .attention_factor = 1.5, .clamp = YarnClamp::kFull};
  odd.yarn_layers = YarnLayers::kAll;
  odd.rotation = RotationPrecision::kActivation;
  odd.norm_rounding = NormRounding::kTwice;
  odd.num_heads = odd.num_kv_heads = 16;
  odd.head_dim = 256;
  odd.last_layer_full = true;
  odd.layer_pattern = {LayerType::kSliding};
  configs.push_back(odd);
  Schema schema;
  AddConfigTo(schema);
  for (const Config& config : configs) {
    const auto recipe =
        Recipe::Resolve(schema, {.file = {.name = "test", .text = ConfigToRecipe(config)}});
    ASSERT_TRUE(recipe.ok()) << recipe.status().ToString();
    const auto again = ConfigFromRecipe(*recipe);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(*again, config);
  }
}

TEST(RecipeConfig, PrintsTheEquationThatDoesNotHold) {
  Schema schema;
  AddConfigTo(schema);
  Config config = Preset("14m");
  config.num_kv_heads = 3;
  const auto recipe =
      Recipe::Resolve(schema, {.file = {.name = "test", .text = ConfigToRecipe(config)}});
  ASSERT_TRUE(recipe.ok()) << recipe.status().ToString();
  EXPECT_THAT(ConfigFromRecipe(*recipe).status().message(),
              HasSubstr("[model]: num_heads % num_kv_heads = 8 % 3 = 2"));
}

TEST(Config, PaddedVocabularyAndForcedLastLayer) {
  Config config = Preset("7b");
  EXPECT_EQ(config.padded_vocab_size(), 100352);
  config.num_layers = 30;
  EXPECT_FALSE(config.is_full(29));
  config.last_layer_full = true;
  EXPECT_TRUE(config.is_full(29));
  EXPECT_EQ(config.window(29), 0);
  EXPECT_EQ(config.window(28), 4096);
}

TEST(Config, UnknownSizesListTheKnownOnes) {
  EXPECT_THAT(ConfigByName("8b").status().message(), HasSubstr("7b 32b 14m"));
}

}  // namespace
}  // namespace ulmus::nn::olmo3
