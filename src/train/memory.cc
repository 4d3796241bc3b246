#include "train/memory.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "nn/olmo3/parameters.h"
#include "nn/olmo3/remat.h"
#include "nn/olmo3/sharding.h"

namespace ulmus::train {
namespace {

using nn::olmo3::Config;

// Elements per token and layer that stand in proportion to these widths.
struct Widths {
  double D, heads, kv, F;
};

// Fitted to memory_stats() of some eighty programs of 1 to 60 million weights on the CPU plugin;
// memory_plugin_test.cc holds the presets against them. All in elements of 4 bytes.
struct Fit {
  Widths kept;               // by remat "none", of each layer
  Widths work;               // while the layers of a group are run again, of each of them
  double mlp_products_kept;  // by how much F of `work` falls if the MLP's products are kept
  double logit_blocks;       // blocks of logits at one time
};
constexpr Fit kFitF32 = {{5.87, 3.06, 3.66, 7.14}, {5.08, 2.5, 7.75, 5.35}, 1.98, 10.8};
constexpr Fit kFitBF16 = {{5.0, 1.62, 2.72, 7.45}, {7.47, 2.7, 2.55, 2.65}, 0, 8};
// Copies of all weights: gradients and the update at work in the backward pass, sums over
// microbatches beside them, and in the loss.
constexpr double kBackwardCopies = 2.2, kMicrobatchCopies = 0.34, kLossCopies = 1.55;
constexpr double kLossBlock = 1024;  // tokens and vocabulary of a block, nn/cross_entropy.h

// Sizes of one device's share.
struct Local {
  double tokens;  // of a microbatch
  double D, heads, kv, F, V, N;
  double layers, groups, period;
  double bytes;  // of an activation
};

int64_t AxisSize(const Mesh& mesh, std::string_view axis) {
  return mesh.HasAxis(axis) ? mesh.AxisSize(axis) : 1;
}

int64_t BatchShards(const Mesh& mesh) {
  return AxisSize(mesh, "data") * AxisSize(mesh, "fsdp") * AxisSize(mesh, "context");
}

Local LocalSizes(const Config& c, const StepOptions& options, const Mesh& mesh) {
  const auto tensor = static_cast<double>(AxisSize(mesh, "tensor"));
  const double kv_shards = c.num_kv_heads % AxisSize(mesh, "tensor") == 0 ? tensor : 1;
  const nn::olmo3::LayerGroups groups = GroupLayers(c);
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  return {.tokens = number(options.global_batch) * number(options.sequence_length) /
                    number(options.num_microbatches * BatchShards(mesh)),
          .D = number(c.hidden_size),
          .heads = number(c.num_heads * c.head_dim) / tensor,
          .kv = number(c.num_kv_heads * c.head_dim) / kv_shards,
          .F = number(c.intermediate_size) / tensor,
          .V = number(c.padded_vocab_size()) / tensor,
          .N = number(c.num_heads) / tensor,
          .layers = number(c.num_layers),
          .groups = number(std::max<int64_t>(groups.num_groups, 1)),
          .period = number(std::max<int64_t>(groups.period, 1)),
          .bytes = options.forward.dtype == DType::kF32 ? 4.0 : 2.0};
}

double Weigh(const Widths& w, const Local& s) {
  return w.D * s.D + w.heads * s.heads + w.kv * s.kv + w.F * s.F;
}

// Bytes per token.
struct PerToken {
  double kept = 0;  // from the forward pass to the backward pass
  double work = 0;  // in the backward pass, beside it
};

PerToken ActivationsOf(const Fit& fit, const Local& s, const nn::olmo3::RematChoice& remat) {
  const double inputs = s.bytes * s.D * s.layers;
  if (!remat.layer) {
    const double all = 4 * s.layers * Weigh(fit.kept, s);
    // With one group there is no loop that would keep anything over its end.
    return s.groups < 2 ? PerToken{inputs, all - inputs} : PerToken{all, 0};
  }
  PerToken sizes{.kept = remat.group ? inputs / s.period : inputs, .work = 0};
  double work = 4 * Weigh(fit.work, s);
  // What is kept need not be made again; q, k and v are taken apart again either way.
  const auto keep = [&](std::string_view name, double bytes, double saved) {
    if (std::ranges::find(remat.save, name) == remat.save.end()) return;
    sizes.kept += s.layers * bytes;
    work -= saved;
  };
  keep(nn::olmo3::kAttention, s.bytes * s.heads, s.bytes * s.heads);
  keep(nn::olmo3::kAttentionLse, 4 * s.N, 0);
  keep(nn::olmo3::kQuery, s.bytes * s.heads, 0);
  keep(nn::olmo3::kKey, s.bytes * s.kv, 0);
  keep(nn::olmo3::kValue, s.bytes * s.kv, 0);
  keep(nn::olmo3::kOutProj, s.bytes * s.D, s.bytes * s.D);
  keep(nn::olmo3::kMlpOut, s.bytes * s.D, s.bytes * s.D);
  keep(nn::olmo3::kMlpGate, s.bytes * s.F, s.bytes * s.F * fit.mlp_products_kept);
  keep(nn::olmo3::kMlpUp, s.bytes * s.F, 0);
  // A group's layers run again side by side; without a loop over groups, one after the other.
  sizes.work = (s.groups < 2 ? 1 : s.period) * std::max(work, 0.0);
  return sizes;
}

// Weights that fsdp gathers to compute with: one group's, and the head.
double GatheredBytes(const Config& model, const Local& s, const Mesh& mesh) {
  if (AxisSize(mesh, "fsdp") == 1) return 0;
  double largest = 0, group = 0;
  const auto tensor = static_cast<double>(AxisSize(mesh, "tensor"));
  for (const nn::olmo3::ParameterSpec& spec : nn::olmo3::Parameters(model)) {
    const auto elements = static_cast<double>(spec.type.shape.num_elements()) / tensor;
    if (spec.stacked)
      group += elements / s.groups;
    else
      largest = std::max(largest, elements);
  }
  return s.bytes * (group + largest);
}

}  // namespace

MemoryEstimate EstimateMemory(const Config& model, const StepOptions& options, const Mesh& mesh) {
  const AxisRules rules = nn::olmo3::DefaultRules(model, mesh);
  MemoryEstimate memory;
  const int64_t moment = options.moments == DType::kBF16 ? 2 : 4;
  for (const nn::olmo3::ParameterSpec& spec : nn::olmo3::Parameters(model)) {
    const Sharding sharding = *ApplyRules(rules, mesh, spec.axes);
    const int64_t elements = LocalShape(mesh, spec.type.shape, sharding).num_elements();
    memory.weights += 4 * elements;
    memory.moments += 2 * moment * elements;
  }
  // Tokens and, if documents are kept apart, their ids are 4 bytes each; the mask is one.
  memory.batch = options.global_batch * options.sequence_length / BatchShards(mesh) *
                 (options.documents ? 9 : 5);

  const Local s = LocalSizes(model, options, mesh);
  const Fit& fit = options.forward.dtype == DType::kF32 ? kFitF32 : kFitBF16;
  const PerToken sizes = ActivationsOf(fit, s, **nn::olmo3::RematByName(options.forward.remat));
  const auto weights = static_cast<double>(memory.weights);
  const bool microbatches = options.num_microbatches > 1;
  const double backward_weights =
      weights * (kBackwardCopies + (microbatches ? kMicrobatchCopies : 0));
  const double backward = s.tokens * (sizes.kept + sizes.work);
  const double loss_weights = weights * kLossCopies;
  const double loss_kept =
      s.groups < 2 ? std::min(sizes.kept, s.bytes * s.D * s.layers) : sizes.kept;
  const double loss = s.tokens * loss_kept + 4 * std::min(s.tokens, kLossBlock) *
                                                 std::min(s.V, kLossBlock) * fit.logit_blocks;

  // The two places where most is alive: the backward pass through the layers, and the loss.
  const bool in_loss = loss_weights + loss > backward_weights + backward;
  memory.gradients = std::llround(in_loss ? loss_weights : backward_weights);
  memory.activations = std::llround((in_loss ? loss : backward) + GatheredBytes(model, s, mesh));
  return memory;
}

}  // namespace ulmus::train
