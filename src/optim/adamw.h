// AdamW with a step that can be left out, as OLMo-core trains.
#pragma once

#include "graph/value.h"

namespace ulmus::optim {

enum class AdamRule {
  kAdamW,    // OLMo-core SkipStepAdamW, optax.adamw: bias correction of the moments
  kAdamPax,  // MaxText "adam_pax": bias correction folded into the decay rates
};

struct AdamWOptions {
  AdamRule rule = AdamRule::kAdamW;
  double beta1 = 0.9, beta2 = 0.95;  // OLMo 3, all stages
  double eps = 1e-8;                 // outside the square root, after bias correction
};

// What one update of all tensors shares. f32 scalars but for `apply`.
struct AdamWStep {
  graph::Value lr;
  graph::Value count;  // updates applied before this one
  graph::Value
      apply;  // bool scalar: false leaves everything as it was, whatever the gradients hold
};

// Whether a step whose loss and gradient norm are these may be applied: both finite and within the
// limits (skip_step.h). f32 scalars -> bool scalar.
graph::Value StepApplies(graph::Value loss, graph::Value grad_norm, graph::Value loss_limit,
                         graph::Value grad_norm_limit, Loc loc = Loc::current());

// count + 1 where applied. OLMo-core's step_increment_bugfix = false left it at 0 for ever, which
// raises the rate by sqrt(1 - beta2) / (1 - beta1) = 2.236; AI2's published runs have it fixed.
graph::Value NextCount(const AdamWStep& step, bool increment = true, Loc loc = Loc::current());

struct AdamWTensor {
  graph::Value weight, exp_avg, exp_avg_sq;  // all f32, or the moments bf16 (see below)
};

// The tensor after the step. grad: clipped, f32, of the weight's shape. Decoupled decay first:
// weight * (1 - lr * weight_decay), with the scheduled rate times lr_factor.
// Moments of bf16 are computed in f32 and rounded: a 7B run lost 0.93 of loss to that, because any
// change below 2^-9 of a value is dropped.
AdamWTensor AdamWUpdate(const AdamWTensor& tensor, graph::Value grad, const AdamWStep& step,
                        double weight_decay, double lr_factor, const AdamWOptions& options,
                        Loc loc = Loc::current());

}  // namespace ulmus::optim
