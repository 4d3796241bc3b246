#include "nn/olmo3/parameters.h"

#include <algorithm>

namespace ulmus::nn::olmo3 {
namespace {

struct KindInfo {
  TensorKind kind;
  const char* hf_suffix;  // after "model.layers.<l>."
  std::vector<std::string> axes;
};

const std::vector<KindInfo>& LayerKinds() {
  static const std::vector<KindInfo> kinds = {
      {TensorKind::kQProj, "self_attn.q_proj.weight", {"heads", "embed"}},
      {TensorKind::kKProj, "self_attn.k_proj.weight", {"kv", "embed"}},
      {TensorKind::kVProj, "self_attn.v_proj.weight", {"kv", "embed"}},
      {TensorKind::kOProj, "self_attn.o_proj.weight", {"embed", "heads"}},
      {TensorKind::kQNorm, "self_attn.q_norm.weight", {"norm"}},
      {TensorKind::kKNorm, "self_attn.k_norm.weight", {"norm"}},
      {TensorKind::kGateProj, "mlp.gate_proj.weight", {"mlp", "embed"}},
      {TensorKind::kUpProj, "mlp.up_proj.weight", {"mlp", "embed"}},
      {TensorKind::kDownProj, "mlp.down_proj.weight", {"embed", "mlp"}},
      {TensorKind::kPostAttentionNorm, "post_attention_layernorm.weight", {"norm"}},
      {TensorKind::kPostFeedforwardNorm, "post_feedforward_layernorm.weight", {"norm"}},
  };
  return kinds;
}

// As Hugging Face has it: the vocabulary unpadded, one layer.
Shape HfShape(const Config& c, TensorKind kind) {
  const int64_t D = c.hidden_size, F = c.intermediate_size, Q = c.num_heads * c.head_dim,
                KV = c.num_kv_heads * c.head_dim;
  switch (kind) {
    case TensorKind::kEmbedding:
    case TensorKind::kHead:
      return {c.vocab_size, D};
    case TensorKind::kQProj:
      return {Q, D};
    case TensorKind::kKProj:
    case TensorKind::kVProj:
      return {KV, D};
    case TensorKind::kOProj:
      return {D, Q};
    case TensorKind::kQNorm:
      return {Q};
    case TensorKind::kKNorm:
      return {KV};
    case TensorKind::kGateProj:
    case TensorKind::kUpProj:
      return {F, D};
    case TensorKind::kDownProj:
      return {D, F};
    case TensorKind::kPostAttentionNorm:
    case TensorKind::kPostFeedforwardNorm:
    case TensorKind::kFinalNorm:
      return {D};
  }
  CheckFailed(Loc::current(), "unknown tensor kind");
}

std::string LayerName(int64_t layer, const char* suffix) {
  return fmt::format("model.layers.{}.{}", layer, suffix);
}

ParameterSpec WholeTensor(const Config& config, std::string name, TensorKind kind,
                          std::vector<std::string> axes) {
  Shape shape = HfShape(config, kind);
  if (kind == TensorKind::kEmbedding || kind == TensorKind::kHead) {
    shape = {config.padded_vocab_size(), config.hidden_size};
  }
  return {.name = name,
          .kind = kind,
          .type = {DType::kF32, shape},
          .axes = std::move(axes),
          .hf_names = {name},
          .stacked = false,
          .weight_decay = kind != TensorKind::kEmbedding};
}

ParameterSpec Stack(const Config& config, const LayerGroups& groups, int64_t place,
                    const KindInfo& info) {
  ParameterSpec spec;
  spec.name = fmt::format("model.layer_groups.{}.{}", place, info.hf_suffix);
  spec.kind = info.kind;
  Dims dims = HfShape(config, info.kind).dims();
  dims.insert(dims.begin(), groups.num_groups);
  spec.type = {DType::kF32, Shape(dims)};
  spec.axes = info.axes;
  spec.axes.insert(spec.axes.begin(), "layers");
  for (int64_t group = 0; group < groups.num_groups; ++group) {
    spec.hf_names.push_back(LayerName(group * groups.period + place, info.hf_suffix));
  }
  spec.stacked = true;
  return spec;
}

}  // namespace

bool IsNorm(TensorKind kind) {
  switch (kind) {
    case TensorKind::kQNorm:
    case TensorKind::kKNorm:
    case TensorKind::kPostAttentionNorm:
    case TensorKind::kPostFeedforwardNorm:
    case TensorKind::kFinalNorm:
      return true;
    default:
      return false;
  }
}

const std::vector<TensorKind>& LayerTensorKinds() {
  static const std::vector<TensorKind> kinds = [] {
    std::vector<TensorKind> result;
    for (const KindInfo& info : LayerKinds()) result.push_back(info.kind);
    return result;
  }();
  return kinds;
}

LayerGroups GroupLayers(const Config& config) {
  const auto period = static_cast<int64_t>(config.layer_pattern.size());
  // A last layer that leaves the pattern cannot be in a group.
  const bool last_differs =
      config.last_layer_full &&
      config.layer_pattern[static_cast<size_t>((config.num_layers - 1) % period)] !=
          LayerType::kFull;
  const int64_t regular = config.num_layers - (last_differs ? 1 : 0);
  const int64_t num_groups = regular / period;
  return {.period = period,
          .num_groups = num_groups,
          .num_single = config.num_layers - num_groups * period};
}

std::vector<ParameterSpec> Parameters(const Config& config) {
  const LayerGroups groups = GroupLayers(config);
  std::vector<ParameterSpec> specs;
  specs.push_back(
      WholeTensor(config, "model.embed_tokens.weight", TensorKind::kEmbedding, {"vocab", "embed"}));
  for (int64_t place = 0; groups.num_groups > 0 && place < groups.period; ++place) {
    for (const KindInfo& info : LayerKinds()) {
      specs.push_back(Stack(config, groups, place, info));
    }
  }
  for (int64_t layer = groups.num_grouped(); layer < config.num_layers; ++layer) {
    for (const KindInfo& info : LayerKinds()) {
      specs.push_back(WholeTensor(config, LayerName(layer, info.hf_suffix), info.kind, info.axes));
    }
  }
  specs.push_back(WholeTensor(config, "model.norm.weight", TensorKind::kFinalNorm, {"norm"}));
  if (!config.tie_word_embeddings) {
    specs.push_back(WholeTensor(config, "lm_head.weight", TensorKind::kHead, {"vocab", "embed"}));
  }
  return specs;
}

std::vector<HfTensor> HfTensors(const Config& config) {
  const LayerGroups groups = GroupLayers(config);
  const auto kinds = static_cast<int64_t>(LayerKinds().size());
  const int64_t padding = config.padded_vocab_size() - config.vocab_size;
  const int64_t final_norm =
      1 + (groups.num_groups > 0 ? groups.period * kinds : 0) + groups.num_single * kinds;
  std::vector<HfTensor> tensors;
  tensors.push_back({.name = "model.embed_tokens.weight",
                     .shape = HfShape(config, TensorKind::kEmbedding),
                     .parameter = 0,
                     .group = -1,
                     .padding_rows = padding});
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool grouped = layer < groups.num_grouped();
    const int64_t body =
        grouped ? layer % groups.period
                : (groups.num_groups > 0 ? groups.period : 0) + layer - groups.num_grouped();
    for (int64_t kind = 0; kind < kinds; ++kind) {
      const KindInfo& info = LayerKinds()[static_cast<size_t>(kind)];
      tensors.push_back({.name = LayerName(layer, info.hf_suffix),
                         .shape = HfShape(config, info.kind),
                         .parameter = 1 + body * kinds + kind,
                         .group = grouped ? layer / groups.period : -1,
                         .padding_rows = 0});
    }
  }
  tensors.push_back({.name = "model.norm.weight",
                     .shape = HfShape(config, TensorKind::kFinalNorm),
                     .parameter = final_norm,
                     .group = -1,
                     .padding_rows = 0});
  if (!config.tie_word_embeddings) {
    tensors.push_back({.name = "lm_head.weight",
                       .shape = HfShape(config, TensorKind::kHead),
                       .parameter = final_norm + 1,
                       .group = -1,
                       .padding_rows = padding});
  }
  return tensors;
}

ParameterCounts CountParameters(const Config& config, bool padded) {
  ParameterCounts counts;
  const int64_t padding = padded ? config.padded_vocab_size() - config.vocab_size : 0;
  counts.embedding = (config.vocab_size + padding) * config.hidden_size;
  for (const HfTensor& tensor : HfTensors(config)) {
    counts.total += tensor.shape.num_elements();
    if (tensor.padding_rows > 0) counts.total += padding * config.hidden_size;
  }
  return counts;
}

}  // namespace ulmus::nn::olmo3
