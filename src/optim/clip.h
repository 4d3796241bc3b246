// One norm over all gradients, and the one factor that limits it.
#pragma once

#include "graph/value.h"

namespace ulmus::optim {

enum class ClipRule {
  kOlmoCore,  // min(1, max_norm / (norm + 1e-6)), the rule of torch.nn.utils.clip_grad_norm_
  kMaxText,   // 1 if norm < max_norm, else max_norm / norm: optax clip_by_global_norm
  kOff,
};

// sqrt of the sum of squares of all elements, in f32: a scalar. Tensors of f32 or bf16; no tensors:
// 0.
graph::Value GlobalNorm(graph::Graph& graph, const graph::Values& tensors,
                        Loc loc = Loc::current());

// What to multiply every gradient with. norm: f32 scalar -> f32 scalar. A norm that is not finite
// gives a factor that is not either, or 0: such a step must not be applied.
graph::Value ClipFactor(graph::Value norm, double max_norm, ClipRule rule,
                        Loc loc = Loc::current());

}  // namespace ulmus::optim
