// Attention and the head's loss with their gradients, compiled for accelerators that are not here.
#include "nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>

#include "nn/testing/cross_entropy_program.h"
#include "pjrt/plugin.h"
#include "pjrt/topology.h"

namespace ulmus::nn {
namespace {

struct Target {
  std::string topology, kind;
};
void PrintTo(const Target& target, std::ostream* os) { *os << target.topology; }

class LossesAot : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    const auto plugin = pjrt::LoadPluginOfKind(GetParam().kind);
    if (!plugin.ok() && plugin.error().code() == StatusCode::kNotFound)
      GTEST_SKIP() << plugin.error().message();
    auto topology = pjrt::FindTopology(GetParam().topology);
    ASSERT_TRUE(topology.ok()) << topology.status().ToString();
    topology_ = std::move(*topology);
  }

  Mesh DataTensorContext() const {
    return Mesh({{"data", topology_->num_devices() / 4}, {"tensor", 2}, {"context", 2}});
  }

  int64_t TempBytes(const graph::Graph& graph) const {
    const auto executable =
        topology_->Compile(graph.ToProgram({.platform = GetParam().kind, .use_kernels = true}));
    EXPECT_TRUE(executable.ok()) << executable.status().ToString();
    return executable.ok() ? executable->memory_stats().temp_bytes : 0;
  }

  std::unique_ptr<pjrt::Topology> topology_;
};
INSTANTIATE_TEST_SUITE_P(Targets, LossesAot,
                         testing::Values(Target{"v5p:2x2x1", "tpu"}, Target{"h100:1x1x8", "cuda"}),
                         [](const auto& test) { return test.param.kind; });

// A device's scores, [heads,T/2,T] in f32, would be 134 MB.
TEST_P(LossesAot, AttentionCompilesInLinearMemory) {
  const Mesh mesh = DataTensorContext();
  AttentionProgram program(
      {.B = mesh.AxisSize("data"), .T = 4096, .N = 8, .K = 4, .H = 128, .window = 1024},
      DType::kBF16, {.sharding = Sharding{{{"data"}, {"context"}, {"tensor"}, {}}}}, mesh);
  EXPECT_LE(TempBytes(program.graph), 100'000'000);
}

// A device's logits, [T,V/2] in f32, would be 822 MB.
TEST_P(LossesAot, CrossEntropyCompilesInTheMemoryOfABlock) {
  const Mesh mesh = DataTensorContext();
  HeadProgram program({.B = mesh.AxisSize("data"), .T = 8192, .D = 256, .V = 100352}, DType::kBF16,
                      DType::kF32,
                      {.vocab_size = 100278,
                       .sharding = Sharding{{{"data"}, {"context"}, {}}},
                       .head_sharding = Sharding{{{"tensor"}, {"data"}}}},
                      mesh);
  EXPECT_LE(TempBytes(program.graph), 300'000'000);
}

}  // namespace
}  // namespace ulmus::nn
