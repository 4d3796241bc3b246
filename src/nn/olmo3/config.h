// What an OLMo 3 model is: sizes, layer pattern, rotary embedding, and the points where references
// disagree, by name. Read from a recipe or from Hugging Face's config.json; written back as that.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe.h"
#include "base/status.h"
#include "nn/rms_norm.h"  // NormRounding
#include "nn/rope.h"      // Yarn, RotationPrecision

namespace ulmus::nn::olmo3 {

enum class LayerType {
  kSliding,  // key j is seen by query i iff 0 <= i - j < sliding_window
  kFull,     // iff j <= i
};

// Which layers YaRN scales. The references disagree.
enum class YarnLayers {
  kFullAttention,  // OLMo-core; transformers 4.57 and 5.24; recommended
  kAll,            // MaxText; transformers 5.0 and others until it was repaired
};

// Sizes in the letters of the code: D hidden_size, F intermediate_size, L num_layers, N num_heads,
// K num_kv_heads, H head_dim, V vocab_size.
struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // each serves num_heads / num_kv_heads query heads
  int64_t head_dim = 0;

  // Layer l is layer_pattern[l % size], except the last where last_layer_full says so.
  std::vector<LayerType> layer_pattern = {LayerType::kSliding, LayerType::kSliding,
                                          LayerType::kSliding, LayerType::kFull};
  bool last_layer_full = false;   // OLMo-core forces it; matters where L % 4 != 0
  int64_t sliding_window = 4096;  // counts the query itself

  int64_t max_position_embeddings = 0;  // context, tokens; bounds nothing in the arithmetic
  double rope_theta = 500000;
  std::optional<Yarn> yarn = {};
  YarnLayers yarn_layers = YarnLayers::kFullAttention;
  RotationPrecision rotation = RotationPrecision::kF32;

  double rms_norm_eps = 1e-6;  // block, q/k and final norms
  NormRounding norm_rounding = NormRounding::kOnce;
  bool tie_word_embeddings = false;

  // Embedding and head have vocab_size rounded up to a multiple of this many rows in training
  // (OLMo-core: 128). The extra rows are cut when weights are exported.
  int64_t vocab_multiple = 1;

  double initializer_range = 0.02;
  // What a Hugging Face export says beside the arithmetic.
  std::optional<int64_t> pad_token_id = {}, bos_token_id = {}, eos_token_id = {};
  std::string dtype = "bfloat16";

  int64_t padded_vocab_size() const;
  LayerType layer_type(int64_t layer) const;
  bool is_full(int64_t layer) const { return layer_type(layer) == LayerType::kFull; }
  // 0 on full-attention layers.
  int64_t window(int64_t layer) const { return is_full(layer) ? 0 : sliding_window; }
  // The scaling of this kind of layer, if any.
  std::optional<Yarn> yarn_of(LayerType type) const;
  friend bool operator==(const Config&, const Config&) = default;
};

// kInvalidArgument with the equation that does not hold and its numbers.
Status ValidateConfig(const Config& config);

// ---- presets: the published models and OLMo-core's smaller sizes ----
struct ConfigPreset {
  std::string_view name;  // "7b", "32b", "190m", ...
  std::string_view source;
  Config (*make)();
};
const std::vector<ConfigPreset>& ConfigPresets();
// kNotFound lists the names.
Result<Config> ConfigByName(std::string_view name);

// ---- Hugging Face config.json ----
inline constexpr size_t kMaxHfConfigBytes = size_t{1} << 20;

// Reads transformers 4.x (rope_theta, rope_scaling), 5.x (rope_parameters per layer type) and the
// flat rope_parameters that some 5.x versions wrote. Nothing is filled in from class defaults,
// which differ from the published models: a missing field is an error, as are unknown fields and
// fields that contradict each other. kInvalidArgument names field, value found and value expected.
// `name` stands for the text in messages.
Result<Config> ConfigFromHf(std::string_view json, std::string_view name = "config.json");

enum class HfForm {
  kTransformers4,  // as published; read by 4.57 and later
  kTransformers5,  // rope_parameters per layer type
};
// The form the published files have, unless only the later one can say it (YaRN on all layers, a
// theta other than 500000, which 5.x would drop for one kind of layer).
HfForm DefaultHfForm(const Config& config);
// JSON, two-space indentation, one trailing newline. CHECKs that the form can say it.
std::string ConfigToHf(const Config& config, HfForm form);
inline std::string ConfigToHf(const Config& config) {
  return ConfigToHf(config, DefaultHfForm(config));
}

// ---- recipe, keys `model.*` ----
void AddConfigTo(Schema& schema);
Result<Config> ConfigFromRecipe(const Recipe& recipe);
// "[model]\n..." that reads back as `config`: for presets and for runs that start from a
// checkpoint.
std::string ConfigToRecipe(const Config& config);

}  // namespace ulmus::nn::olmo3
