// A program of one head with its loss and gradients, and its twin in double, for tests and the
// benchmark.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "graph/autodiff.h"
#include "graph/ops.h"
#include "nn/cross_entropy.h"
#include "nn/testing/attention_program.h"  // Noise, SumOfProducts

namespace ulmus::nn {

struct HeadShape {
  int64_t B, T, D, V;
};

struct HeadResults {
  std::vector<double> nll, logsumexp, dx, dhead;
};

// loss = sum(nll * ct_nll + logsumexp * ct_lse).
inline HeadResults CrossEntropyReference(const HeadShape& s, const CrossEntropyOptions& options,
                                         const std::vector<double>& x,
                                         const std::vector<double>& head,
                                         const std::vector<double>& labels,
                                         const std::vector<double>& ct_nll,
                                         const std::vector<double>& ct_lse) {
  const int64_t tokens = options.vocab_size > 0 ? options.vocab_size : s.V;
  const int64_t rows = options.padding == PaddingRows::kMasked ? tokens : s.V;
  HeadResults r{{}, {}, std::vector<double>(x.size()), std::vector<double>(head.size())};
  for (int64_t m = 0; m < s.B * s.T; ++m) {
    std::vector<double> logits(static_cast<size_t>(rows));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t d = 0; d < s.D; ++d)
        logits[static_cast<size_t>(row)] +=
            x[static_cast<size_t>(m * s.D + d)] * head[static_cast<size_t>(row * s.D + d)];
    }
    const double top = *std::ranges::max_element(logits);
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - top);
    const double lse = top + std::log(sum);
    const auto at = static_cast<size_t>(m);
    const auto label = static_cast<int64_t>(labels[at]);
    const bool valid = label >= 0 && label < tokens;
    r.logsumexp.push_back(lse);
    r.nll.push_back(valid ? lse - logits[static_cast<size_t>(label)] : 0);
    const double pull = valid ? ct_nll[at] : 0;
    for (int64_t row = 0; row < rows; ++row) {
      const double ct = std::exp(logits[static_cast<size_t>(row)] - lse) * (pull + ct_lse[at]) -
                        (row == label ? pull : 0);
      for (int64_t d = 0; d < s.D; ++d) {
        const auto xi = static_cast<size_t>(m * s.D + d), hi = static_cast<size_t>(row * s.D + d);
        r.dx[xi] += ct * head[hi];
        r.dhead[hi] += ct * x[xi];
      }
    }
  }
  return r;
}

// nll, logsumexp, dx, dhead.
struct HeadProgram {
  HeadShape shape;
  CrossEntropyOptions options;
  graph::Graph graph;
  std::vector<graph::RefTensor> inputs;  // x, head, labels, ct_nll, ct_lse

  HeadProgram(HeadShape the_shape, DType x_dtype, DType head_dtype,
              CrossEntropyOptions the_options = {}, const Mesh& mesh = {})
      : shape(the_shape), options(std::move(the_options)), graph("cross_entropy", mesh) {
    const auto& [B, T, D, V] = shape;
    const TensorType x_type{x_dtype, {B, T, D}}, head_type{head_dtype, {V, D}},
        per_token{DType::kF32, {B, T}};
    const graph::Value x = graph.Parameter("x", x_type, options.sharding),
                       head = graph.Parameter("head", head_type, options.head_sharding),
                       labels = graph.Parameter("labels", {DType::kI32, {B, T}}),
                       ct_nll = graph.Parameter("ct_nll", per_token),
                       ct_lse = graph.Parameter("ct_lse", per_token);
    inputs = {Noise(x_type, 1), Noise(head_type, 2), graph::RefTensor::Zeros({DType::kI32, {B, T}}),
              Noise(per_token, 4), Noise(per_token, 5)};
    for (double& value : inputs[0].data) value = RoundTo(x_dtype, 4 * value);
    for (size_t i = 0; i < inputs[2].data.size(); ++i) {  // some labels are no token
      const auto n = static_cast<int64_t>(i);
      inputs[2].data[i] = static_cast<double>(n % 5 == 3   ? -100
                                              : n % 7 == 6 ? V
                                                           : (n * n + 3 * n) % V);
    }
    const CrossEntropyResult result = CrossEntropy(x, head, labels, options);
    const graph::Value loss =
        SumOfProducts(result.nll, ct_nll) + SumOfProducts(result.logsumexp, ct_lse);
    const graph::Values grads = Grad(loss, {x, head});
    graph.Result("nll", result.nll);
    graph.Result("logsumexp", result.logsumexp);
    graph.Result("dx", grads[0], options.sharding);
    graph.Result("dhead", grads[1], options.head_sharding);
  }

  std::vector<std::vector<double>> Reference() const {
    HeadResults r = CrossEntropyReference(shape, options, inputs[0].data, inputs[1].data,
                                          inputs[2].data, inputs[3].data, inputs[4].data);
    return {std::move(r.nll), std::move(r.logsumexp), std::move(r.dx), std::move(r.dhead)};
  }
};

}  // namespace ulmus::nn
