#include "optim/torch_cpu_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "optim/clip.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::optim {
namespace {

// What vector_norm does, in plain C++: 8 lanes.
float TorchNorm(std::span<const float> x) {
  float lanes[8] = {};
  for (size_t i = 0; i < x.size(); ++i) lanes[i % 8] += x[i] * x[i];
  float sum = lanes[0];
  for (int lane = 1; lane < 8; ++lane) sum += lanes[lane];
  return std::sqrt(sum);
}

// Like the gradient of an output head: few large elements, then many small ones.
std::vector<float> HeavyTailed(size_t size, std::string_view name) {
  const RandomStream stream(1, 0, "test", std::string(name));
  std::vector<float> x(size);
  for (size_t i = 0; i < size; ++i) {
    const double u = UniformAt(stream, i);
    x[i] = static_cast<float>(i < size / 50 ? 1 + u : 8e-3 * (u + 0.1));
  }
  return x;
}

double ExactNorm(const std::vector<std::vector<float>>& tensors) {
  double sum = 0;
  for (const auto& x : tensors)
    for (const float v : x) sum += double{v} * v;
  return std::sqrt(sum);
}

// The norm over all tensors: `torch_cpu` in PyTorch's order, else in the compiler's.
double RunNorm(const std::vector<std::vector<float>>& tensors, const std::vector<Shape>& shapes,
               const Dims& slices, bool torch_cpu) {
  graph::Graph g("norm");
  graph::Values values;
  std::vector<HostTensor> arguments;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorType type{DType::kF32, shapes[i]};
    values.push_back(g.Parameter(fmt::format("x{}", i), type));
    HostTensor host(type);
    for (size_t k = 0; k < tensors[i].size(); ++k)
      host.Set(static_cast<int64_t>(k), double{tensors[i][k]});
    arguments.push_back(std::move(host));
  }
  g.Result("norm", torch_cpu ? TorchCpuGlobalNorm(g, values, slices) : GlobalNorm(g, values));
  const auto client = pjrt::SharedDefaultClient(1);
  EXPECT_TRUE(client.ok()) << client.status().message();
  auto results = pjrt::RunOnce(**client, g.ToProgram(), arguments);
  EXPECT_TRUE(results.ok()) << results.status().message();
  return results->at(0).Get(0);
}

TEST(TorchCpuNorm, RoundsAsEightLanesDoNotAsTheExactSumDoes) {
  if (!pjrt::SharedDefaultClient(1).ok())
    GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
  const std::vector<std::vector<float>> tensors = {HeavyTailed(4096 * 192, "head")};
  const float torch = TorchNorm(tensors[0]);
  const double exact = ExactNorm(tensors);
  ASSERT_GT(std::fabs(torch / exact - 1), 5e-6) << "the data does not tell the two orders apart";
  const std::vector<Shape> shapes = {{4096, 192}};
  EXPECT_NEAR(RunNorm(tensors, shapes, {1}, true) / torch, 1, 2e-7);
  EXPECT_NEAR(RunNorm(tensors, shapes, {1}, false) / exact, 1, 5e-7);
}

TEST(TorchCpuNorm, LayersOfAStackAreTensorsOfTheirOwn) {
  if (!pjrt::SharedDefaultClient(1).ok())
    GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
  // Sizes that are no multiple of 8 lanes x 64 rows, one below 8, and a vector.
  const std::vector<std::vector<float>> tensors = {HeavyTailed(3 * 700 * 37, "stack"),
                                                   HeavyTailed(13, "bias"), HeavyTailed(5, "few")};
  float sum = 0;
  for (size_t layer = 0; layer < 3; ++layer) {
    const float norm = TorchNorm(std::span(tensors[0]).subspan(layer * 700 * 37, 700 * 37));
    sum += norm * norm;
  }
  for (size_t i = 1; i < 3; ++i) sum += TorchNorm(tensors[i]) * TorchNorm(tensors[i]);
  const std::vector<Shape> shapes = {{3, 700, 37}, {13}, {5}};
  EXPECT_NEAR(RunNorm(tensors, shapes, {3, 1, 1}, true) / std::sqrt(sum), 1, 2e-7);
}

}  // namespace
}  // namespace ulmus::optim
