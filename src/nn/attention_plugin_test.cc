// Attention compiled, on every CPU plugin: against the dense twin in double.
#include "nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "nn/testing/attention_program.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::pjrt {
void PrintTo(const PluginCandidate& plugin, std::ostream* os);  // rms_norm_plugin_test.cc
}  // namespace ulmus::pjrt

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;

constexpr const char* kResults[] = {"out", "dq", "dk", "dv"};

std::vector<HostTensor> Results(const pjrt::PluginCandidate& plugin, const Graph& graph,
                                const std::vector<RefTensor>& inputs) {
  const Result<pjrt::Client*> client = pjrt::SharedClient(plugin, graph.mesh().num_devices());
  CHECK(client.ok(), "{}", client.status().ToString());
  std::vector<HostTensor> arguments;
  for (const RefTensor& input : inputs) arguments.push_back(input.ToHost());
  Result<std::vector<HostTensor>> results = pjrt::RunOnce(**client, graph.ToProgram(), arguments);
  CHECK(results.ok(), "{}", results.status().ToString());
  return std::move(*results);
}

// Largest difference as a share of the tensor's largest magnitude.
double WorstError(const HostTensor& got, const std::vector<double>& want) {
  double largest = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(got.Get(static_cast<int64_t>(i)) - want[i]);
    worst = error <= worst ? worst : error;  // NaN stays
    largest = std::max(largest, std::fabs(want[i]));
  }
  return worst / largest;
}

class AttentionPlugin : public testing::TestWithParam<pjrt::PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed; run `make setup`";
  }

  static void ExpectEqualsTheTwin(const AttentionShape& shape, DType dtype,
                                  const AttentionOptions& options, const Mesh& mesh = {}) {
    AttentionProgram program(shape, dtype, options, mesh);
    const auto got = Results(GetParam(), program.graph, program.inputs);
    const auto want = program.Reference();
    for (size_t r = 0; r < want.size(); ++r) {
      // f32: sums of T rounded terms. bf16: probabilities and score gradients are rounded to 2^-9.
      EXPECT_LE(WorstError(got[r], want[r]), dtype == DType::kF32 ? 2e-6 : 1.5e-2)
          << kResults[r] << " " << Name(dtype) << " T=" << shape.T << " N=" << shape.N
          << " K=" << shape.K << " window=" << shape.window << " block=" << options.block;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Plugins, AttentionPlugin, testing::ValuesIn(pjrt::KnownCpuPlugins()),
                         [](const auto& plugin) { return pjrt::TestName(plugin.param); });

TEST_P(AttentionPlugin, EqualsTheDenseTwin) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ExpectEqualsTheTwin({.B = 2, .T = 33, .N = 4, .K = 2, .H = 8}, dtype, {.block = 8});
    ExpectEqualsTheTwin({.B = 1, .T = 150, .N = 3, .K = 1, .H = 16, .window = 40}, dtype, {});
    ExpectEqualsTheTwin({.B = 1, .T = 64, .N = 2, .K = 2, .H = 8, .window = 64}, dtype, {});
  }
}

}  // namespace
}  // namespace ulmus::nn
