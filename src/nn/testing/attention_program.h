// A program of one attention with its gradients, for tests and the benchmark.
#pragma once

#include <cmath>
#include <vector>

#include "graph/autodiff.h"
#include "graph/interpret.h"
#include "graph/ops.h"
#include "nn/attention.h"
#include "nn/testing/attention_reference.h"

namespace ulmus::nn {

// Numbers without a pattern that blocks could share, in (-1, 1).
inline graph::RefTensor Noise(TensorType type, int64_t seed) {
  graph::RefTensor tensor = graph::RefTensor::Zeros(std::move(type));
  uint64_t state = static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15u + 1;
  for (double& x : tensor.data) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    x = RoundTo(tensor.type.dtype, std::ldexp(static_cast<double>(state >> 40), -23) - 1);
  }
  return tensor;
}

// Sum of x * y over all elements, in f32.
inline graph::Value SumOfProducts(graph::Value x, graph::Value y) {
  const graph::Value products = Convert(x, DType::kF32) * Convert(y, DType::kF32);
  Dims axes;
  for (int64_t axis = 0; axis < products.rank(); ++axis) axes.push_back(axis);
  return ReduceSum(products, axes);
}

// out, dq, dk, dv of loss = sum(Attention(q, k, v) * ct).
struct AttentionProgram {
  AttentionShape shape;
  graph::Graph graph;
  std::vector<graph::RefTensor> inputs;  // q, k, v, ct, then segment ids if there are any

  AttentionProgram(AttentionShape the_shape, DType dtype, AttentionOptions options = {},
                   const Mesh& mesh = {})
      : shape(std::move(the_shape)), graph("attention", mesh) {
    const auto& [B, T, N, K, H, window, segments, scale] = shape;
    const TensorType queries{dtype, {B, T, N, H}}, keys{dtype, {B, T, K, H}};
    const graph::Value q = graph.Parameter("q", queries, options.sharding),
                       k = graph.Parameter("k", keys, options.sharding),
                       v = graph.Parameter("v", keys, options.sharding),
                       ct = graph.Parameter("ct", queries, options.sharding);
    inputs = {Noise(queries, 1), Noise(keys, 2), Noise(keys, 3), Noise(queries, 4)};
    for (size_t i : {0, 1}) {  // scores of a few units: a softmax that is neither flat nor one-hot
      for (double& x : inputs[i].data) x = RoundTo(dtype, 3 * x);
    }
    if (!segments.empty()) {
      options.segment_ids = graph.Parameter("segments", {DType::kI32, {B, T}});
      graph::RefTensor ids = graph::RefTensor::Zeros({DType::kI32, {B, T}});
      for (size_t i = 0; i < segments.size(); ++i) ids.data[i] = static_cast<double>(segments[i]);
      inputs.push_back(std::move(ids));
    }
    options.window = window;
    options.scale = scale;
    const graph::Value out = Attention(q, k, v, options);
    const graph::Values grads = Grad(SumOfProducts(out, ct), {q, k, v});
    graph.Result("out", out, options.sharding);
    graph.Result("dq", grads[0], options.sharding);
    graph.Result("dk", grads[1], options.sharding);
    graph.Result("dv", grads[2], options.sharding);
  }

  // The same four from the twin.
  std::vector<std::vector<double>> Reference() const {
    const auto& [q, k, v, ct] =
        std::tie(inputs[0].data, inputs[1].data, inputs[2].data, inputs[3].data);
    AttentionGradients grads = AttentionBackwardReference(shape, q, k, v, ct);
    return {AttentionReference(shape, q, k, v), std::move(grads.dq), std::move(grads.dk),
            std::move(grads.dv)};
  }
};

}  // namespace ulmus::nn
