// The recipe's table `model`, and the way back.
#include <algorithm>

#include "base/recipe_struct.h"
#include "nn/olmo3/config.h"

namespace ulmus::nn::olmo3 {
namespace {

constexpr const char* kSliding = "sliding";
constexpr const char* kFull = "full";

// The keys as the recipe spells them.
struct ModelTable {
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0, num_heads = 0,
          num_kv_heads = 0, head_dim = 0, max_position_embeddings = 0;
  std::vector<std::string> layer_pattern = {kSliding, kSliding, kSliding, kFull};
  bool last_layer_full = false;
  int64_t sliding_window = 4096;
  double rope_theta = 500000;
  std::string rotation = "f32";
  std::string yarn = "none";
  double yarn_factor = 8;
  int64_t yarn_original_context = 8192;
  double yarn_beta_fast = 32, yarn_beta_slow = 1, yarn_attention_factor = 0;
  std::string yarn_clamp = "half";
  double rms_norm_eps = 1e-6;
  std::string norm_rounding = "once";
  bool tie_word_embeddings = false;
  int64_t vocab_multiple = 1;
  double initializer_range = 0.02;
  int64_t pad_token_id = -1, bos_token_id = -1, eos_token_id = -1;
  std::string export_dtype = "bfloat16";
};

using Table = StructSchema<ModelTable>;

void AddSizes(Table& table) {
  const auto size = [](const char* help) { return FieldOptions{.help = help, .min = 1}; };
  table.Require("vocab_size", &ModelTable::vocab_size, size("token ids"))
      .Require("hidden_size", &ModelTable::hidden_size, size("width of the residual stream"))
      .Require("intermediate_size", &ModelTable::intermediate_size, size("width inside the MLP"))
      .Require("num_layers", &ModelTable::num_layers, size("layers"))
      .Require("num_heads", &ModelTable::num_heads, size("query heads"))
      .Require("num_kv_heads", &ModelTable::num_kv_heads, size("key-value heads"))
      .Add("head_dim", &ModelTable::head_dim,
           {.help = "width of a head; 0: hidden_size / num_heads", .min = 0})
      .Require("max_position_embeddings", &ModelTable::max_position_embeddings,
               size("context in tokens, as exports state it"))
      .Add("vocab_multiple", &ModelTable::vocab_multiple,
           size("embedding and head have vocab_size rounded up to a multiple of this many rows"));
}

void AddAttention(Table& table) {
  table
      .Add("layer_pattern", &ModelTable::layer_pattern,
           {.help = "attention of the layers, repeated", .choices = {kSliding, kFull}})
      .Add("last_layer_full", &ModelTable::last_layer_full,
           {.help = "full attention in the last layer whatever the pattern says (OLMo-core)"})
      .Add("sliding_window", &ModelTable::sliding_window,
           {.help = "keys a query of a sliding layer sees, itself counted", .min = 1});
}

void AddRope(Table& table) {
  table
      .Add("rope_theta", &ModelTable::rope_theta,
           {.help = "base of the rotary frequencies", .above = 1})
      .Add("rotation", &ModelTable::rotation,
           {.help = "dtype of the rotation; bf16: MaxText", .choices = {"f32", "bf16"}})
      .Add("yarn", &ModelTable::yarn,
           {.help = "layers that YaRN scales; all: MaxText, transformers 5.0",
            .choices = {"none", "full_attention", "all"}})
      .Add("yarn_factor", &ModelTable::yarn_factor,
           {.help = "new context / original context", .min = 1})
      .Add("yarn_original_context", &ModelTable::yarn_original_context,
           {.help = "tokens of context before YaRN", .min = 1})
      .Add("yarn_beta_fast", &ModelTable::yarn_beta_fast,
           {.help = "turns in the original context above which a frequency stays", .above = 0})
      .Add("yarn_beta_slow", &ModelTable::yarn_beta_slow,
           {.help = "turns below which a frequency is divided by the factor", .above = 0})
      .Add("yarn_attention_factor", &ModelTable::yarn_attention_factor,
           {.help = "multiplies cos and sin; 0: 0.1 ln(factor) + 1", .min = 0})
      .Add("yarn_clamp", &ModelTable::yarn_clamp,
           {.help = "upper end of the ramp: half the head (OLMo-core) or the head (transformers)",
            .choices = {"half", "full"}});
}

void AddRest(Table& table) {
  table
      .Add("rms_norm_eps", &ModelTable::rms_norm_eps,
           {.help = "added to the mean square", .above = 0})
      .Add("norm_rounding", &ModelTable::norm_rounding,
           {.help = "of norms in bf16; twice: MaxText", .choices = {"once", "twice"}})
      .Add("tie_word_embeddings", &ModelTable::tie_word_embeddings,
           {.help = "the head is the embedding"})
      .Add("initializer_range", &ModelTable::initializer_range,
           {.help = "standard deviation of initial weights", .above = 0})
      .Add("pad_token_id", &ModelTable::pad_token_id, {.help = "-1: none", .min = -1})
      .Add("bos_token_id", &ModelTable::bos_token_id, {.help = "-1: none", .min = -1})
      .Add("eos_token_id", &ModelTable::eos_token_id, {.help = "-1: none", .min = -1})
      .Add("export_dtype", &ModelTable::export_dtype,
           {.help = "of weights exported to Hugging Face",
            .choices = {"bfloat16", "float16", "float32"}});
}

const Table& ModelSchema() {
  static const Table table = [] {
    Table t("model");
    AddSizes(t);
    AddAttention(t);
    AddRope(t);
    AddRest(t);
    return t;
  }();
  return table;
}

std::optional<int64_t> TokenId(int64_t id) {
  return id < 0 ? std::nullopt : std::optional<int64_t>(id);
}

}  // namespace

void AddConfigTo(Schema& schema) { ModelSchema().AddTo(schema); }

Result<Config> ConfigFromRecipe(const Recipe& recipe) {
  const ModelTable t = ModelSchema().Read(recipe);
  Config c;
  c.vocab_size = t.vocab_size;
  c.hidden_size = t.hidden_size;
  c.intermediate_size = t.intermediate_size;
  c.num_layers = t.num_layers;
  c.num_heads = t.num_heads;
  c.num_kv_heads = t.num_kv_heads;
  if (t.head_dim == 0 && t.hidden_size % t.num_heads != 0) {
    return InvalidArgumentError(
        "model.hidden_size % model.num_heads = {} % {} = {}; give model.head_dim", t.hidden_size,
        t.num_heads, t.hidden_size % t.num_heads);
  }
  c.head_dim = t.head_dim > 0 ? t.head_dim : t.hidden_size / t.num_heads;
  c.layer_pattern.clear();
  for (const std::string& type : t.layer_pattern) {
    c.layer_pattern.push_back(type == kFull ? LayerType::kFull : LayerType::kSliding);
  }
  c.last_layer_full = t.last_layer_full;
  c.sliding_window = t.sliding_window;
  c.max_position_embeddings = t.max_position_embeddings;
  c.rope_theta = t.rope_theta;
  c.rotation = t.rotation == "bf16" ? RotationPrecision::kActivation : RotationPrecision::kF32;
  if (t.yarn != "none") {
    c.yarn = Yarn{.factor = t.yarn_factor,
                  .original_context = t.yarn_original_context,
                  .beta_fast = t.yarn_beta_fast,
                  .beta_slow = t.yarn_beta_slow,
                  .attention_factor = t.yarn_attention_factor,
                  .clamp = t.yarn_clamp == "full" ? YarnClamp::kFull : YarnClamp::kHalf};
    c.yarn_layers = t.yarn == "all" ? YarnLayers::kAll : YarnLayers::kFullAttention;
  }
  c.rms_norm_eps = t.rms_norm_eps;
  c.norm_rounding = t.norm_rounding == "twice" ? NormRounding::kTwice : NormRounding::kOnce;
  c.tie_word_embeddings = t.tie_word_embeddings;
  c.vocab_multiple = t.vocab_multiple;
  c.initializer_range = t.initializer_range;
  c.pad_token_id = TokenId(t.pad_token_id);
  c.bos_token_id = TokenId(t.bos_token_id);
  c.eos_token_id = TokenId(t.eos_token_id);
  c.dtype = t.export_dtype;
  if (const Status status = ValidateConfig(c); !status.ok()) return status.WithContext("[model]");
  return c;
}

std::string ConfigToRecipe(const Config& config) {
  std::string text = "[model]\n";
  const auto add = [&](const char* key, const RecipeValue& value) {
    text += fmt::format("{} = {}\n", key, ToToml(value));
  };
  add("vocab_size", config.vocab_size);
  add("hidden_size", config.hidden_size);
  add("intermediate_size", config.intermediate_size);
  add("num_layers", config.num_layers);
  add("num_heads", config.num_heads);
  add("num_kv_heads", config.num_kv_heads);
  add("head_dim", config.head_dim);
  add("max_position_embeddings", config.max_position_embeddings);
  add("vocab_multiple", config.vocab_multiple);
  std::vector<std::string> pattern;
  for (const LayerType type : config.layer_pattern) {
    pattern.emplace_back(type == LayerType::kFull ? kFull : kSliding);
  }
  add("layer_pattern", pattern);
  add("last_layer_full", config.last_layer_full);
  add("sliding_window", config.sliding_window);
  add("rope_theta", config.rope_theta);
  add("rotation", std::string(config.rotation == RotationPrecision::kF32 ? "f32" : "bf16"));
  add("yarn", std::string(!config.yarn                             ? "none"
                          : config.yarn_layers == YarnLayers::kAll ? "all"
                                                                   : "full_attention"));
  if (config.yarn) {
    add("yarn_factor", config.yarn->factor);
    add("yarn_original_context", config.yarn->original_context);
    add("yarn_beta_fast", config.yarn->beta_fast);
    add("yarn_beta_slow", config.yarn->beta_slow);
    add("yarn_attention_factor", config.yarn->attention_factor);
    add("yarn_clamp", std::string(config.yarn->clamp == YarnClamp::kHalf ? "half" : "full"));
  }
  add("rms_norm_eps", config.rms_norm_eps);
  add("norm_rounding", std::string(config.norm_rounding == NormRounding::kOnce ? "once" : "twice"));
  add("tie_word_embeddings", config.tie_word_embeddings);
  add("initializer_range", config.initializer_range);
  add("pad_token_id", config.pad_token_id.value_or(-1));
  add("bos_token_id", config.bos_token_id.value_or(-1));
  add("eos_token_id", config.eos_token_id.value_or(-1));
  add("export_dtype", config.dtype);
  return text;
}

}  // namespace ulmus::nn::olmo3
