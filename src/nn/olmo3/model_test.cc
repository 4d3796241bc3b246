// The forward pass and its gradients in double against the golden tiny model.
#include "nn/olmo3/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/interpret.h"
#include "nn/olmo3/testing/golden.h"

namespace ulmus::nn::olmo3 {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;

std::vector<RefTensor> Arguments(const Config& config, const LossProgramOptions& options) {
  std::vector<RefTensor> arguments = FormulaWeights(config);
  arguments.push_back(RefTensor::FromHost(FormulaTokens(config, options.B, options.T)));
  return arguments;
}

double Norm(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

class Variants : public testing::TestWithParam<const char*> {};

TEST_P(Variants, EqualTheGoldenInDouble) {
  const Golden golden = LoadGolden();
  for (const GoldenVariant& variant : GoldenVariants(golden)) {
    if (std::string_view(variant.name) != GetParam()) continue;
    const auto& want = golden.json[variant.name];
    LossProgramOptions options;
    options.logits = true;
    const auto graph = LossProgram(variant.config, options);
    const auto got = Interpret(*graph, Arguments(variant.config, options), {.round = false});
    const int64_t V = variant.config.vocab_size;
    for (int64_t t = 0; t < 12; ++t) {
      for (int64_t v = 0; v < V; ++v) {
        const double expected = want["logits"][static_cast<size_t>(t)][static_cast<size_t>(v)];
        // The rotary frequencies are rounded to f32.
        ASSERT_NEAR(got[0].data[static_cast<size_t>(t * V + v)], expected, 2e-6)
            << "position " << t << " token " << v;
      }
    }
    EXPECT_NEAR(got[1].data[0], want["ce"].get<double>(), 1e-6);
    EXPECT_NEAR(got[2].data[0], want["z"].get<double>(), 1e-10);
    for (const HfTensor& tensor : HfTensors(variant.config)) {
      const auto size = static_cast<size_t>(tensor.shape.num_elements());
      const auto first = static_cast<size_t>(std::max<int64_t>(tensor.group, 0)) * size;
      const auto grad =
          std::span(got[3 + static_cast<size_t>(tensor.parameter)].data).subspan(first, size);
      const auto& expected = want["grads"][tensor.name];
      const double norm = expected["norm"];
      EXPECT_NEAR(Norm(grad), norm, 1e-5 * norm) << tensor.name;
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(grad[i], expected["first3"][i].get<double>(), 1e-5 * norm)
            << tensor.name << " element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Variants,
                         testing::Values("default", "yarn_full_attention_only",
                                         "yarn_all_layers_maxtext"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ulmus::nn::olmo3
