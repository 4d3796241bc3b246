// The output head and its loss as one op: logits exist for one block of tokens and vocabulary at a
// time, in either direction.
#pragma once

#include <optional>

#include "graph/value.h"
#include "tensor/mesh.h"  // Sharding

namespace ulmus::nn {

// What rows of the head beyond the vocabulary (padding to a round size) do in the softmax.
enum class PaddingRows {
  kCounted,  // like any other row: OLMo-core, which trains them
  kMasked,   // probability 0, no gradient
};

struct CrossEntropyOptions {
  int64_t vocab_size = 0;  // rows that are tokens, the first ones; 0: all
  PaddingRows padding = PaddingRows::kCounted;
  int64_t token_block = 0, vocab_block = 0;  // per block of logits; 0: chosen
  // How x [B,T,D] lies on the mesh: D stays whole. With it each device computes its own tokens
  // (inside graph::Manual); without it, on a mesh of several devices, partitioning is left to the
  // compiler. Not inside a Manual region: there x is one device's block already.
  std::optional<Sharding> sharding = {};
  // How head [V,D] lies; only with `sharding`, whose batch and sequence axes may not cut V. Devices
  // along the axes of V compute their own rows and add up; along those of D (fsdp) the head is
  // gathered, rounded first, and its gradient scattered.
  std::optional<Sharding> head_sharding = {};
};

struct CrossEntropyResult {
  graph::Value nll;        // -ln softmax(x head^T)[label], in nats; 0 where the label is no token
  graph::Value logsumexp;  // of the logits; whatever the label. z-loss is its square
};

// Per token, no mask applied: f32 [B,T] each, both differentiable.
//   x [B,T,D] f32 or bf16, after the final norm   head [V,D] in x's dtype or f32 (rounded to x's)
//   labels [B,T] i32: outside [0, vocab_size), e.g. -100, the nll is 0 and has no gradient
// Logits are accumulated and kept in f32, never rounded. The gradient of head is accumulated in f32
// and returned in head's dtype. The backward pass keeps the log-sum-exp, which carries the name
// "cross_entropy_lse" for remat policies, and computes the logits again.
CrossEntropyResult CrossEntropy(graph::Value x, graph::Value head, graph::Value labels,
                                CrossEntropyOptions options = {}, Loc loc = Loc::current());

// Which labels are tokens, [0, vocab_size): bool of the labels' shape. The others have no loss.
graph::Value IsToken(graph::Value labels, int64_t vocab_size);

// kInvalidArgument, with the equation that does not hold, if tensors of these shapes cannot lie on
// the mesh as `x_sharding` and `head_sharding` say. CrossEntropy itself aborts with the same words.
Status ValidateCrossEntropySharding(const Mesh& mesh, const Shape& x, const Shape& head,
                                    const Sharding& x_sharding, const Sharding& head_sharding);

}  // namespace ulmus::nn
