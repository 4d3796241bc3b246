// A program of one RMSNorm with its gradients, for tests and the benchmark.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "graph/autodiff.h"
#include "graph/interpret.h"
#include "graph/ops.h"
#include "nn/rms_norm.h"

namespace ulmus::nn {

inline constexpr float kEps = 1e-6f;

inline graph::RefTensor Waves(TensorType type, double phase) {
  graph::RefTensor tensor = graph::RefTensor::Zeros(std::move(type));
  for (size_t i = 0; i < tensor.data.size(); ++i)
    tensor.data[i] =
        RoundTo(tensor.type.dtype, 1.5 * std::sin(0.7 * static_cast<double>(i) + phase) + 0.1);
  return tensor;
}

// y, loss = sum(y * ct), dx and dscale of RmsNorm(x, scale).
struct NormProgram {
  graph::Graph graph;
  std::vector<graph::RefTensor> inputs;  // x, scale, ct

  NormProgram(TensorType x_type, const RmsNormOptions& options = {}, const Mesh& mesh = {})
      : graph("norm", mesh) {
    const TensorType scale_type{DType::kF32, {x_type.shape.dim(-1)}};
    const graph::Value x = graph.Parameter("x", x_type, options.sharding),
                       scale = graph.Parameter("scale", scale_type);
    const graph::Value ct = graph.Parameter("ct", x_type, options.sharding);
    const graph::Value y = RmsNorm(x, scale, kEps, options);
    Dims axes;
    const graph::Value wide = Convert(y, DType::kF32) * Convert(ct, DType::kF32);
    for (int64_t axis = 0; axis < wide.rank(); ++axis) axes.push_back(axis);
    const graph::Value loss = ReduceSum(wide, axes);
    const graph::Values grads = Grad(loss, {x, scale});
    graph.Result("y", y, options.sharding);
    graph.Result("loss", loss);
    graph.Result("dx", grads[0], options.sharding);
    graph.Result("dscale", grads[1]);
    inputs = {Waves(x_type, 0), Waves(scale_type, 1), Waves(x_type, 2)};
  }
};

}  // namespace ulmus::nn
