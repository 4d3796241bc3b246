// The head's loss compiled, on every CPU plugin: against the twin in double.
#include "nn/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "nn/testing/cross_entropy_program.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::pjrt {
void PrintTo(const PluginCandidate& plugin, std::ostream* os);  // rms_norm_plugin_test.cc
}  // namespace ulmus::pjrt

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::RefTensor;

constexpr const char* kResults[] = {"nll", "logsumexp", "dx", "dhead"};

class CrossEntropyPlugin : public testing::TestWithParam<pjrt::PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed; run `make setup`";
  }

  static std::vector<HostTensor> Run(const Graph& graph, const std::vector<RefTensor>& inputs) {
    const Result<pjrt::Client*> client = pjrt::SharedClient(GetParam(), graph.mesh().num_devices());
    CHECK(client.ok(), "{}", client.status().ToString());
    std::vector<HostTensor> arguments;
    for (const RefTensor& input : inputs) arguments.push_back(input.ToHost());
    Result<std::vector<HostTensor>> results = pjrt::RunOnce(**client, graph.ToProgram(), arguments);
    CHECK(results.ok(), "{}", results.status().ToString());
    return std::move(*results);
  }

  static void ExpectEqualsTheTwin(HeadShape shape, DType x, DType head,
                                  const CrossEntropyOptions& options, const Mesh& mesh = {}) {
    HeadProgram program(shape, x, head, options, mesh);
    const auto got = Run(program.graph, program.inputs);
    const auto want = program.Reference();
    for (size_t r = 0; r < want.size(); ++r) {
      double largest = 0, worst = 0;
      for (size_t i = 0; i < want[r].size(); ++i) {
        const double error = std::fabs(got[r].Get(static_cast<int64_t>(i)) - want[r][i]);
        worst = error <= worst ? worst : error;
        largest = std::max(largest, std::fabs(want[r][i]));
      }
      // bf16: the head and d logits are rounded to 2^-9 each; logits and losses stay f32.
      EXPECT_LE(worst, (x == DType::kF32 ? 2e-6 : 1e-2) * largest)
          << kResults[r] << " " << Name(x) << " V=" << shape.V;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Plugins, CrossEntropyPlugin, testing::ValuesIn(pjrt::KnownCpuPlugins()),
                         [](const auto& plugin) { return pjrt::TestName(plugin.param); });

TEST_P(CrossEntropyPlugin, EqualsTheTwin) {
  for (const auto& [x, head] : {std::pair{DType::kF32, DType::kF32},
                                {DType::kBF16, DType::kF32},
                                {DType::kBF16, DType::kBF16}}) {
    ExpectEqualsTheTwin({.B = 2, .T = 33, .D = 16, .V = 97}, x, head,
                        {.vocab_size = 90, .token_block = 16, .vocab_block = 40});
    ExpectEqualsTheTwin({.B = 1, .T = 40, .D = 8, .V = 130}, x, head,
                        {.vocab_size = 100, .padding = PaddingRows::kMasked});
  }
}

}  // namespace
}  // namespace ulmus::nn
