// Random programs compiled on the default CPU plugin: values and gradients against the naive twin.
// Twenty programs share one compilation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/autodiff.h"
#include "graph/ops.h"
#include "graph/testing/random_programs.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::graph {
namespace {

class RandomProgramPlugin : public testing::TestWithParam<uint64_t> {};  // first seed of a batch

TEST_P(RandomProgramPlugin, ValuesAndGradientsEqualTheTwin) {
  Graph graph("random");
  std::vector<RefTensor> inputs;
  std::vector<HostTensor> arguments;
  for (uint64_t seed = GetParam(); seed < GetParam() + 20; ++seed) {
    const RandomProgram program =
        AddRandomProgram(graph, seed, DType::kF32, fmt::format("p{}.", seed));
    graph.Result(fmt::format("seed {} loss", seed), program.loss);
    const Values grads = Grad(program.loss, program.wrt);
    for (size_t i = 0; i < grads.size(); ++i)
      graph.Result(fmt::format("seed {} grad {}", seed, i), grads[i]);
    for (const RefTensor& argument : program.arguments) {
      arguments.push_back(argument.ToHost());
      inputs.push_back(argument);
    }
  }
  const Result<pjrt::Client*> client = pjrt::SharedDefaultClient();
  if (!client.ok() && client.error().code() == StatusCode::kNotFound)
    GTEST_SKIP() << client.error().ToString();
  ASSERT_TRUE(client.ok()) << client.error().ToString();
  const Program program = graph.ToProgram();
  const Result<std::vector<HostTensor>> results = pjrt::RunOnce(**client, program, arguments);
  ASSERT_TRUE(results.ok()) << results.error().ToString();
  const std::vector<RefTensor> twins = Interpret(graph, inputs);
  for (size_t k = 0; k < twins.size(); ++k) {
    for (size_t i = 0; i < twins[k].data.size(); ++i) {
      const double got = (*results)[k].Get(static_cast<int64_t>(i)), want = twins[k].data[i];
      // A few hundred float32 roundings and XLA's polynomials, through slopes of order one.
      ASSERT_NEAR(got, want, 2e-4 * std::max(1.0, std::fabs(want)))
          << program.results[k].name << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgramPlugin, testing::Values(1000, 1020));

}  // namespace
}  // namespace ulmus::graph
