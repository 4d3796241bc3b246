// The head's loss compiled, on every CPU plugin: against the twin in double.
#include "nn/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/testing/cross_entropy_program.h"
#include "nn/testing/run_graph_testing.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

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
    return RunProgram(ClientFor(GetParam(), graph), graph.ToProgram(), inputs);
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
  ExpectEqualsTheTwin({.B = 2, .T = 33, .D = 16, .V = 97}, DType::kF32, DType::kF32,
                      {.vocab_size = 90, .token_block = 16, .vocab_block = 40});
  ExpectEqualsTheTwin({.B = 1, .T = 40, .D = 8, .V = 130}, DType::kBF16, DType::kF32,
                      {.vocab_size = 100, .padding = PaddingRows::kMasked});
}

// ---- numbers that any plugin may compute: on the default one ----

class CrossEntropyCompiled : public testing::Test {
 protected:
  void SetUp() override {
    if (pjrt::InstalledCpuPlugins().empty()) GTEST_SKIP() << "no CPU plugin; run `make setup`";
  }
  static pjrt::Client& DefaultClientFor(const Graph& graph) {
    const Result<pjrt::Client*> client = pjrt::SharedDefaultClient(graph.mesh().num_devices());
    CHECK(client.ok(), "{}", client.status().ToString());
    return **client;
  }
  static std::vector<HostTensor> Results(const HeadProgram& program) {
    return RunProgram(DefaultClientFor(program.graph), program.graph.ToProgram(), program.inputs);
  }
};

TEST_F(CrossEntropyCompiled, OnAMeshEqualsOneDevice) {
  const HeadShape shape{.B = 4, .T = 12, .D = 16, .V = 130};
  CrossEntropyOptions options{
      .vocab_size = 60, .padding = PaddingRows::kMasked, .token_block = 20, .vocab_block = 32};
  const auto want = Results(HeadProgram(shape, DType::kF32, DType::kF32, options));
  const Mesh fsdp_tensor({{"fsdp", 4}, {"tensor", 2}}), context({{"context", 4}});
  const std::vector<std::tuple<Mesh, Sharding, Sharding>> places{
      {fsdp_tensor, Sharding{{{"fsdp"}, {}, {}}}, Sharding{{{"tensor"}, {"fsdp"}}}},
      {context, Sharding{{{}, {"context"}, {}}}, Sharding::Replicated(2)}};
  for (const auto& [mesh, x, head] : places) {
    options.sharding = x;
    options.head_sharding = head;
    const auto got = Results(HeadProgram(shape, DType::kF32, DType::kF32, options, mesh));
    for (size_t r = 0; r < want.size(); ++r) {
      double largest = 0;
      for (int64_t i = 0; i < want[r].num_elements(); ++i)
        largest = std::max(largest, std::fabs(want[r].Get(i)));
      for (int64_t i = 0; i < want[r].num_elements(); ++i)
        ASSERT_NEAR(got[r].Get(i), want[r].Get(i), 2e-6 * largest)
            << kResults[r] << " on " << mesh.ToString();
    }
  }
}

// All logits in f32 would be 1.6 GB; the head and its gradient, in f32, are 51 MB together.
TEST_F(CrossEntropyCompiled, MemoryIsThatOfOneBlockOfLogits) {
  const HeadProgram program({.B = 1, .T = 4096, .D = 64, .V = 100352}, DType::kF32, DType::kF32);
  const auto executable = DefaultClientFor(program.graph).Compile(program.graph.ToProgram());
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  EXPECT_LE((*executable)->memory_stats().temp_bytes, 80'000'000);
}

}  // namespace
}  // namespace ulmus::nn
