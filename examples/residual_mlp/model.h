// The network and its two programs: a training step that takes over the state's buffers, and the
// loss of a batch.
#pragma once

#include <string>
#include <vector>

#include "residual_mlp/config.h"
#include "tensor/host_tensor.h"
#include "tensor/program.h"

namespace ulmus::residual_mlp {

struct ParameterSpec {
  std::string name;
  TensorType type;
  std::vector<std::string> axes;  // logical names, one per dimension
  double init_stddev = 0;         // 0: filled with ones (gains)
};

// embed.weight [256,E], layers.{norm,up,down}.weight stacked over L, norm.weight [D], head.weight
// [D,256].
std::vector<ParameterSpec> Parameters(const Config& config);

// step(state, tokens i32[B,C], labels i32[B], lr f32, adam_step f32) -> (loss f32, grad_norm f32,
// state'). state: per parameter weight, exp_avg, exp_avg_sq, all donated.
Program TrainStep(const Config& config);

// loss(weights, tokens, labels) -> f32: mean cross entropy in nats per byte.
Program EvalLoss(const Config& config);

inline constexpr int64_t kFirstStateResult = 2;  // loss and grad_norm come before the state

}  // namespace ulmus::residual_mlp
