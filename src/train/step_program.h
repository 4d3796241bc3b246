// The training step as one program: microbatches, gradients, clipping, the decision to apply, the
// optimizer. Compiled once for a whole run: all that changes from step to step is an argument.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "nn/olmo3/model.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/param_groups.h"
#include "tensor/mesh.h"
#include "tensor/program.h"

namespace ulmus::train {

// How the squares of all gradients are added up.
enum class GradNormSum {
  kAnyOrder,  // the compiler's order, in f32
  kTorchCpu,  // optim::TorchCpuGlobalNorm, to reproduce a run of PyTorch on a CPU; one device only
};

// Which loss and gradient norm the limits of skip-step are compared with.
enum class SkipMetrics {
  kCrossEntropyAndRawNorm,   // OLMo-core: without z-loss, before clipping
  kTotalLossAndClippedNorm,  // MaxText: with z-loss, after clipping
};

struct StepOptions {
  nn::olmo3::ForwardOptions forward = {};
  int64_t global_batch = 0;      // instances
  int64_t sequence_length = 0;   // tokens per instance
  int64_t num_microbatches = 1;  // run one after the other; gradients add up in f32
  bool documents = false;        // takes segment_ids: attention stays inside documents
  double z_loss_weight = 1e-5;   // OLMo 3, all stages
  optim::AdamWOptions adamw = {};
  DType moments = DType::kF32;  // bf16 cost a 7B run 0.93 of loss
  bool increment_count = true;  // see optim::NextCount
  double weight_decay = 0.1;    // OLMo 3, all stages
  std::vector<optim::ParamGroup> groups = optim::Olmo3ParamGroups();
  optim::ClipRule clip = optim::ClipRule::kOlmoCore;
  double max_grad_norm = 1.0;  // OLMo 3, all stages
  GradNormSum grad_norm_sum = GradNormSum::kAnyOrder;
  SkipMetrics skip_metrics = SkipMetrics::kCrossEntropyAndRawNorm;
  bool layer_norms = false;  // more results: the gradient norm of every tensor
};

// Arguments of the program, after the state (weight, exp_avg, exp_avg_sq of each parameter in the
// order of nn::olmo3::Parameters(), then adam_count), in this order:
//   tokens       i32 [M,b,T]   M microbatches of b = global_batch / M instances
//   loss_mask    bool [M,b,T]  whether the token after this one is a target (data::Batch.loss_mask)
//   segment_ids  i32 [M,b,T]   with `documents` only
//   added_count  f32 []        added to the number of targets the sums are divided by: OLMo-core
//                              adds T per instance that the n-gram filter masked
//   lr, loss_limit, grad_norm_limit   f32 []
// Results: the metrics below, then the next state in the same order, which takes over the buffers,
// then with `layer_norms` one "grad_norm.<parameter>" per parameter: f32 [], or [G] of a stack.
struct StepMetric {
  static constexpr int64_t kLoss = 0;        // sum of -ln p / divisor, nats per target
  static constexpr int64_t kZLoss = 1;       // weighted
  static constexpr int64_t kGradNorm = 2;    // before clipping
  static constexpr int64_t kUpdateNorm = 3;  // of the change of all weights, 0 if not applied
  static constexpr int64_t kCount = 4;       // targets, without added_count
  static constexpr int64_t kApplied = 5;     // 1 or 0, f32 like all metrics
  static constexpr int64_t kNum = 6;
};
constexpr int64_t kTensorsPerParameter = 3;

// kInvalidArgument, with the equation that does not hold, for sizes that do not divide; for a group
// of parameters that cuts through a stack of layers; for unknown names.
Status ValidateStep(const nn::olmo3::Config& model, const StepOptions& options, const Mesh& mesh,
                    const AxisRules& rules);

// A batch without targets is never applied, and neither is one whose loss or gradient is not
// finite or beyond the limits: the state then keeps every bit.
Result<Program> StepProgram(const nn::olmo3::Config& model, const StepOptions& options,
                            const Mesh& mesh, const AxisRules& rules,
                            const graph::ProgramOptions& print = {});

// Sums over a batch, for held-out loss: weights, tokens i32 [B,T], loss_mask bool [B,T] (and
// segment_ids) -> sum of -ln p, number of targets; f32 scalars.
Result<Program> EvalProgram(const nn::olmo3::Config& model, const StepOptions& options,
                            const Mesh& mesh, const AxisRules& rules,
                            const graph::ProgramOptions& print = {});

}  // namespace ulmus::train
