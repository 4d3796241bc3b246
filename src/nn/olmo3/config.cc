#include "nn/olmo3/config.h"

#include <algorithm>
#include <cmath>

namespace ulmus::nn::olmo3 {
namespace {

// Sizes beyond these are mistakes or attacks; products of any two stay far from 2^63.
constexpr int64_t kMaxWidth = int64_t{1} << 24, kMaxLayers = int64_t{1} << 14,
                  kMaxTokens = int64_t{1} << 40;

struct Bound {
  const char* name;
  int64_t value, max;
};

Status CheckSizes(const Config& c) {
  const Bound bounds[] = {{"vocab_size", c.vocab_size, kMaxWidth},
                          {"hidden_size", c.hidden_size, kMaxWidth},
                          {"intermediate_size", c.intermediate_size, kMaxWidth},
                          {"num_layers", c.num_layers, kMaxLayers},
                          {"num_heads", c.num_heads, kMaxWidth},
                          {"num_kv_heads", c.num_kv_heads, kMaxWidth},
                          {"head_dim", c.head_dim, kMaxWidth},
                          {"sliding_window", c.sliding_window, kMaxTokens},
                          {"max_position_embeddings", c.max_position_embeddings, kMaxTokens},
                          {"vocab_multiple", c.vocab_multiple, kMaxWidth}};
  for (const Bound& bound : bounds) {
    if (bound.value < 1 || bound.value > bound.max) {
      return InvalidArgumentError("{} = {}; expected 1 to {}", bound.name, bound.value, bound.max);
    }
  }
  return {};
}

Status CheckHeads(const Config& c) {
  if (c.num_heads % c.num_kv_heads != 0) {
    return InvalidArgumentError(
        "num_heads % num_kv_heads = {} % {} = {}; every key-value head serves the same number of "
        "query heads, so it must be 0",
        c.num_heads, c.num_kv_heads, c.num_heads % c.num_kv_heads);
  }
  if (c.head_dim % 2 != 0) {
    return InvalidArgumentError("head_dim = {} is odd; rotary embedding turns pairs of elements",
                                c.head_dim);
  }
  if (c.num_heads * c.head_dim > kMaxWidth) {
    return InvalidArgumentError("num_heads * head_dim = {} * {} = {}; expected at most {}",
                                c.num_heads, c.head_dim, c.num_heads * c.head_dim, kMaxWidth);
  }
  return {};
}

Status CheckPositive(const char* name, double value) {
  if (std::isfinite(value) && value > 0) return {};
  return InvalidArgumentError("{} = {}; expected a finite number above 0", name, value);
}

Status CheckYarn(const Config& c) {
  if (!c.yarn) {
    if (c.yarn_layers == YarnLayers::kFullAttention) return {};
    return InvalidArgumentError("YaRN on all layers, but no YaRN factor is given");
  }
  TRY(CheckPositive("yarn factor", c.yarn->factor));
  TRY(CheckPositive("yarn beta_fast", c.yarn->beta_fast));
  TRY(CheckPositive("yarn beta_slow", c.yarn->beta_slow));
  TRY(CheckPositive("yarn attention factor", c.yarn->AttentionFactor()));
  if (c.yarn->factor < 1) {
    return InvalidArgumentError("yarn factor = {}; expected 1 or more, the new context / the old",
                                c.yarn->factor);
  }
  if (c.yarn->original_context < 1 || c.yarn->original_context > kMaxTokens) {
    return InvalidArgumentError("yarn original context = {}; expected 1 to {} tokens",
                                c.yarn->original_context, kMaxTokens);
  }
  if (c.yarn->beta_fast < c.yarn->beta_slow) {
    return InvalidArgumentError("yarn beta_fast = {} < beta_slow = {}; expected fast >= slow",
                                c.yarn->beta_fast, c.yarn->beta_slow);
  }
  return {};
}

Status CheckToken(const char* name, const std::optional<int64_t>& id, int64_t vocab_size) {
  if (!id || (*id >= 0 && *id < vocab_size)) return {};
  return InvalidArgumentError("{} = {}; expected 0 <= id < vocab_size = {}", name, *id, vocab_size);
}

// Published sizes, source: OLMo-core TransformerConfig.olmo3_* and the models' config.json.
Config Olmo3(int64_t D, int64_t L, int64_t N, int64_t K, int64_t F) {
  Config c;
  c.vocab_size = 100278;
  c.hidden_size = D;
  c.intermediate_size = F;
  c.num_layers = L;
  c.num_heads = N;
  c.num_kv_heads = K;
  c.head_dim = D / N;
  c.max_position_embeddings = 8192;
  c.vocab_multiple = 128;  // 100352 rows in training
  c.pad_token_id = 100277;
  c.eos_token_id = 100257;
  return c;
}

}  // namespace

int64_t Config::padded_vocab_size() const {
  return (vocab_size + vocab_multiple - 1) / vocab_multiple * vocab_multiple;
}

LayerType Config::layer_type(int64_t layer) const {
  CHECK(layer >= 0 && layer < num_layers, "layer {} of {}", layer, num_layers);
  if (last_layer_full && layer == num_layers - 1) return LayerType::kFull;
  return layer_pattern[static_cast<size_t>(layer) % layer_pattern.size()];
}

std::optional<Yarn> Config::yarn_of(LayerType type) const {
  return type == LayerType::kFull || yarn_layers == YarnLayers::kAll ? yarn : std::nullopt;
}

Status ValidateConfig(const Config& config) {
  TRY(CheckSizes(config));
  TRY(CheckHeads(config));
  if (config.layer_pattern.empty() ||
      static_cast<int64_t>(config.layer_pattern.size()) > kMaxLayers) {
    return InvalidArgumentError("the layer pattern has {} entries; expected 1 to {}",
                                config.layer_pattern.size(), kMaxLayers);
  }
  TRY(CheckPositive("rms_norm_eps", config.rms_norm_eps));
  TRY(CheckPositive("initializer_range", config.initializer_range));
  TRY(CheckPositive("rope_theta", config.rope_theta));
  if (config.rope_theta <= 1) {
    return InvalidArgumentError("rope_theta = {}; expected above 1", config.rope_theta);
  }
  TRY(CheckYarn(config));
  TRY(CheckToken("pad_token_id", config.pad_token_id, config.vocab_size));
  TRY(CheckToken("bos_token_id", config.bos_token_id, config.vocab_size));
  return CheckToken("eos_token_id", config.eos_token_id, config.vocab_size);
}

const std::vector<ConfigPreset>& ConfigPresets() {
  static const std::vector<ConfigPreset> presets = {
      {"7b", "allenai/Olmo-3-1025-7B", [] { return Olmo3(4096, 32, 32, 32, 11008); }},
      {"32b", "allenai/Olmo-3-1125-32B", [] { return Olmo3(5120, 64, 40, 8, 27648); }},
      {"14m", "OLMo-core olmo3_14M", [] { return Olmo3(128, 4, 8, 8, 512); }},
      {"30m", "OLMo-core olmo3_30M", [] { return Olmo3(256, 4, 8, 8, 768); }},
      {"60m", "OLMo-core olmo3_60M", [] { return Olmo3(384, 8, 8, 8, 1536); }},
      {"100m", "OLMo-core olmo3_100M", [] { return Olmo3(512, 12, 8, 8, 2048); }},
      {"190m", "OLMo-core olmo3_190M", [] { return Olmo3(768, 12, 12, 12, 3072); }},
      {"370m", "OLMo-core olmo3_370M", [] { return Olmo3(1024, 16, 16, 16, 4096); }},
      {"600m", "OLMo-core olmo3_600M", [] { return Olmo3(1280, 16, 16, 16, 5120); }},
      {"760m", "OLMo-core olmo3_760M", [] { return Olmo3(1536, 16, 16, 16, 6144); }},
      {"3b", "OLMo-core olmo3_3B", [] { return Olmo3(3328, 16, 16, 16, 13312); }},
  };
  return presets;
}

Result<Config> ConfigByName(std::string_view name) {
  std::string names;
  for (const ConfigPreset& preset : ConfigPresets()) {
    if (preset.name == name) return preset.make();
    names += fmt::format("{}{}", names.empty() ? "" : " ", preset.name);
  }
  return NotFoundError("no OLMo 3 size is called `{}`; there are: {}", name, names);
}

}  // namespace ulmus::nn::olmo3
