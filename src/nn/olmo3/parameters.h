// The model's parameters and how they correspond to Hugging Face's tensors. Layers are stored in
// groups of the pattern's period, one stacked tensor per kind and place in the group, so that the
// forward pass is a scan over groups; layers beyond the last whole group stand alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/olmo3/config.h"
#include "tensor/shape.h"

namespace ulmus::nn::olmo3 {

// layer = period * group + place for layers below period * num_groups.
struct LayerGroups {
  int64_t period = 0, num_groups = 0, num_single = 0;
  int64_t num_grouped() const { return period * num_groups; }
};
LayerGroups GroupLayers(const Config& config);

enum class TensorKind {
  kEmbedding,
  kQProj,
  kKProj,
  kVProj,
  kOProj,
  kQNorm,
  kKNorm,
  kGateProj,
  kUpProj,
  kDownProj,
  kPostAttentionNorm,
  kPostFeedforwardNorm,
  kFinalNorm,
  kHead,
};
bool IsNorm(TensorKind kind);

// Kinds of one layer, in the order of LayerWeights (nn/olmo3/model.h).
const std::vector<TensorKind>& LayerTensorKinds();

struct ParameterSpec {
  // The Hugging Face name, or for a stack "model.layer_groups.<place>.self_attn.q_proj.weight".
  std::string name;
  TensorKind kind = TensorKind::kEmbedding;
  TensorType type;  // f32 [out,in] or [n]; stacks [G,out,in]; embedding and head padded
  std::vector<std::string>
      axes;  // logical, one per dimension: layers vocab embed heads kv mlp norm
  // One name per group for stacks (element g of the stack), else one.
  std::vector<std::string> hf_names;
  bool stacked = false;
  bool weight_decay = true;  // false: the embedding (OLMo-core override, MaxText adamw_mask)
};

// Embedding, stacks by place and kind, single layers by kind, final norm, head (absent if tied):
// 7B 1 + 44 + 0 + 1 + 1. The order of the arguments of every program.
std::vector<ParameterSpec> Parameters(const Config& config);

// One tensor of a Hugging Face checkpoint and where it lives here.
struct HfTensor {
  std::string name;
  Shape shape;            // [vocab_size,D] even where the parameter is padded
  int64_t parameter = 0;  // index into Parameters()
  int64_t group = -1;     // element of the stack; -1: the whole parameter
  int64_t padding_rows =
      0;  // rows that the parameter has beyond `shape`; zero on import, cut on export
};
// All of them, in the order of the model (embedding, layers, norm, head): 7B 355, 32B 707.
std::vector<HfTensor> HfTensors(const Config& config);

// Numbers of weights. Source: spec of OLMo-core's num_params.
struct ParameterCounts {
  int64_t total = 0, embedding = 0;
  int64_t non_embedding() const { return total - embedding; }
};
// With `padded`, embedding and head count their padding rows.
ParameterCounts CountParameters(const Config& config, bool padded = false);

}  // namespace ulmus::nn::olmo3
