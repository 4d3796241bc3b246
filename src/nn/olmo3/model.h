// The forward pass of OLMo 3 as functions of Values: reordered norm (the residual stream is read
// raw, what a branch adds is normed), QK-norm over the full projected width, rotary embedding after
// it, sliding-window and full attention, gated MLP.
//
//   x = E[token]
//   per layer:  x = x + RMSNorm(Attention(x));  x = x + RMSNorm(W_down(silu(W_gate x) * W_up x))
//   logits = W_head RMSNorm(x)
//
// Source: HF transformers modeling_olmo3.py; OLMo-core ReorderedNormTransformerBlock. The pieces of
// a layer are public: programs with a key-value cache put them together themselves.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/value.h"
#include "nn/olmo3/config.h"
#include "nn/olmo3/parameters.h"
#include "nn/rope.h"

namespace ulmus::nn::olmo3 {

// Weights of one layer, or of the layers at one place of all groups with a leading axis [G]. f32.
struct LayerWeights {
  graph::Value q_proj, k_proj, v_proj, o_proj, q_norm, k_norm, gate_proj, up_proj, down_proj,
      post_attention_norm, post_feedforward_norm;
  // In the order of LayerTensorKinds().
  static LayerWeights From(std::span<const graph::Value> values);
  graph::Values All() const;
};

struct Weights {
  graph::Value embedding;             // [V,D]
  std::vector<LayerWeights> stacks;   // one per place in the group, [G,...]; empty without groups
  std::vector<LayerWeights> singles;  // layers after the groups
  graph::Value final_norm;            // [D]
  graph::Value head;                  // [V,D]; the embedding if tied
};

// Parameters(config) as arguments of the graph's program, with shardings under its rules.
graph::Values DeclareParameters(graph::Graph& graph, const Config& config,
                                Loc loc = Loc::current());
// `values` in the order of Parameters(config).
Weights BindWeights(const Config& config, const graph::Values& values);
// A layer's own weights; cut out of the stack where it has one.
LayerWeights WeightsOfLayer(const Config& config, const Weights& weights, int64_t layer);

// Receives intermediate values by name: "embedding", "layers.<l>.q_norm", ".k_norm", ".q_rope",
// ".k_rope" ([B,T,heads,H]), ".attention" (after o_proj), ".mlp", ".output", "final_norm" and, from
// Logits, "logits".
using Capture = std::function<void(const std::string& name, graph::Value value)>;

struct ForwardOptions {
  DType dtype = DType::kBF16;  // of activations and of weights as multiplied; or kF32
  std::string remat = "none";  // a name of nn/olmo3/remat.h
  bool scan = true;            // false: layer by layer; larger programs, same numbers
  bool logits_in_f32 = false;  // f32 operands of the head's product: MaxText logits_dot_in_fp32
  // Only without scan and remat (CHECK): values inside those cannot leave.
  Capture capture = nullptr;
};

struct Inputs {
  graph::Value tokens;            // [B,T] integers
  graph::Value positions = {};    // [B,T] or [1,T] integers; null: 0, 1, ...
  graph::Value segment_ids = {};  // [B,T] i32: attention stays inside equal ids; null: one document
};

// ---- pieces ----

// E[tokens] -> [B,T,D] in options.dtype.
graph::Value Embed(const Config& config, const Weights& weights, graph::Value tokens,
                   const ForwardOptions& options);

struct RopeTables {
  RopeTable sliding, full;
  const RopeTable& of(LayerType type) const { return type == LayerType::kFull ? full : sliding; }
};
// Tables of positions [B,T] or [1,T].
RopeTables MakeRopeTables(const Config& config, graph::Value positions);

struct Qkv {
  graph::Value q;     // [B,T,N,H], normed and rotated
  graph::Value k, v;  // [B,T,K,H]; k normed and rotated
};
// x [B,T,D], the raw residual stream. `name` ("layers.3.") goes before names given to capture.
Qkv ComputeQkv(const Config& config, const LayerWeights& weights, graph::Value x,
               const RopeTable& rope, const ForwardOptions& options, const std::string& name = "");
// x + RMSNorm(attended W_o^T): attended [B,T,N,H] -> [B,T,D]
graph::Value AddAttention(const Config& config, const LayerWeights& weights, graph::Value x,
                          graph::Value attended, const ForwardOptions& options,
                          const std::string& name = "");
// x + RMSNorm(MLP(x))
graph::Value AddMlp(const Config& config, const LayerWeights& weights, graph::Value x,
                    const ForwardOptions& options, const std::string& name = "");
// One whole layer without cache.
graph::Value ApplyLayer(const Config& config, const LayerWeights& weights, LayerType type,
                        graph::Value x, const RopeTables& rope, graph::Value segment_ids,
                        const ForwardOptions& options, const std::string& name = "");
graph::Value FinalNorm(const Config& config, const Weights& weights, graph::Value x);
// hidden [..,D] after the final norm -> f32 [..,vocab_size]; padding rows of the head are cut.
graph::Value Logits(const Config& config, const Weights& weights, graph::Value hidden,
                    const ForwardOptions& options);

// ---- whole ----

// [B,T,D] after the final norm.
graph::Value Hidden(const Config& config, const Weights& weights, const Inputs& inputs,
                    const ForwardOptions& options);

// Position of each token in its document: t minus the start of the run of equal ids. [B,T] -> i32.
graph::Value DocumentPositions(graph::Value segment_ids);

// ---- loss ----

// tokens [B,T], shifted left by one; the last column is -100. Where loss_mask [B,T] (bool or 0/1)
// of the target is false, -100: masked before the shift, as OLMo-core does.
graph::Value ShiftLabels(graph::Value tokens, graph::Value loss_mask = {});

// Sums over all labels that are tokens (>= 0, < vocab_size), all f32 scalars. The mean is a
// division by the caller: sums of microbatches and devices add.
struct LossSums {
  graph::Value nll;    // sum of -ln p(label), nats
  graph::Value z;      // sum of logsumexp^2, unscaled (OLMo 3 weighs it 1e-5)
  graph::Value count;  // labels
};
// hidden [B,T,D] after the final norm, labels [B,T] i32. The softmax runs over the padded
// vocabulary, as in OLMo-core, without keeping logits.
LossSums ComputeLossSums(const Config& config, const Weights& weights, graph::Value hidden,
                         graph::Value labels, const ForwardOptions& options);

}  // namespace ulmus::nn::olmo3
