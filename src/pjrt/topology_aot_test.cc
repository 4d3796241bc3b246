#include "pjrt/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pjrt/test_programs.h"

namespace ulmus::pjrt {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Target {
  std::string topology;
  int64_t num_devices;
  std::string device_kind;
  int64_t min_memory_bytes;
};

void PrintTo(const Target& target, std::ostream* os) { *os << target.topology; }

class TopologyTest : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    const std::string kind = GetParam().topology.starts_with("h100") ? "cuda" : "tpu";
    const auto plugin = LoadPluginOfKind(kind);
    if (!plugin.ok() && plugin.error().code() == StatusCode::kNotFound)
      GTEST_SKIP() << plugin.error().message();
    auto topology = FindTopology(GetParam().topology);
    ASSERT_TRUE(topology.ok()) << topology.status().ToString();
    topology_ = std::move(*topology);
  }
  std::unique_ptr<Topology> topology_;
};
INSTANTIATE_TEST_SUITE_P(
    Targets, TopologyTest,
    testing::Values(Target{"v5p:2x2x1", 4, "TPU v5", 100'000'000'000},
                    Target{"tpu7x:2x2x1", 8, "TPU7x", 100'000'000'000},
                    Target{"h100:1x1x8", 8, "NVIDIA H100 80GB HBM3", 80'000'000'000}),
    [](const auto& test) { return test.param.topology.substr(0, test.param.topology.find(':')); });

TEST_P(TopologyTest, KnowsItsDevices) {
  EXPECT_EQ(topology_->num_devices(), GetParam().num_devices);
  EXPECT_EQ(topology_->num_processes(), 1);
  EXPECT_EQ(topology_->device_kind(), GetParam().device_kind);
  EXPECT_GT(topology_->device_memory_bytes(), GetParam().min_memory_bytes);
}

// x[64,256] rows over "fsdp", w[256,512] rows over "fsdp": w must be gathered.
Program FsdpMatmul(int64_t devices) {
  const std::string n = std::to_string(devices);
  return {.name = "fsdp_matmul",
          .text = "module @fsdp_matmul {\n  sdy.mesh @mesh = <[\"fsdp\"=" + n + R"(]>
  func.func public @main(%x: tensor<64x256xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>},
                         %w: tensor<256x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>})
      -> (tensor<64x512xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"fsdp"}, {}]>}) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x256xf32>, tensor<256x512xf32>) -> tensor<64x512xf32>
    return %y : tensor<64x512xf32>
  }
})",
          .mesh = Mesh({{"fsdp", devices}}),
          .arguments = {{"x", {DType::kF32, {64, 256}}, {{{"fsdp"}, {}}}, -1},
                        {"w", {DType::kF32, {256, 512}}, {{{"fsdp"}, {}}}, -1}},
          .results = {{"y", {DType::kF32, {64, 512}}, {{{"fsdp"}, {}}}, -1}},
          .custom_calls = {}};
}

TEST_P(TopologyTest, CompilesAProgramAndTellsItsMemory) {
  const int64_t n = topology_->num_devices();
  const auto executable = topology_->Compile(FsdpMatmul(n));
  ASSERT_TRUE(executable.ok()) << executable.status().ToString();
  const MemoryStats stats = executable->memory_stats();
  EXPECT_EQ(stats.argument_bytes, (64 * 256 + 256 * 512) * 4 / n);
  EXPECT_EQ(stats.output_bytes, 64 * 512 * 4 / n);
  EXPECT_EQ(stats.alias_bytes, 0);
  EXPECT_EQ(stats.host_argument_bytes, 0);
  EXPECT_GE(stats.TotalBytes(), stats.argument_bytes + stats.output_bytes);
  EXPECT_GT(executable->compile_s(), 0);
  EXPECT_GT(*executable->ComputeSerializedBytes(), 1000);
  const auto optimized = executable->compiled().ComputeOptimizedProgram();
  ASSERT_TRUE(optimized.ok()) << optimized.status().ToString();
  EXPECT_EQ(optimized->format, "hlo_with_config");
  EXPECT_FALSE(optimized->bytes.empty());
  const auto cost = executable->compiled().ComputeCost();
  if (topology_->plugin().kind() == "cuda") {
    EXPECT_EQ(cost.status().code(), StatusCode::kUnimplemented);
  } else {
    ASSERT_TRUE(cost.ok()) << cost.status().ToString();
    EXPECT_GT(cost->at("flops"), 0);
  }
}

TEST_P(TopologyTest, OptimizedTextShowsTheCollectives) {
  const auto text = DumpOptimizedHlo(*topology_, FsdpMatmul(topology_->num_devices()));
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  // Which one the compiler picks differs: v5p permutes, tpu7x reduces and scatters, the GPU
  // gathers.
  const auto shows = [&](const char* collective) {
    return text->find(collective) != std::string::npos;
  };
  EXPECT_TRUE(shows("all-gather") || shows("collective-permute") || shows("reduce-scatter"));
}

TEST_P(TopologyTest, MistakesAreErrors) {
  CompileOptions options;
  options.overrides["no_such_option"] = true;
  const auto unknown = topology_->Compile(FsdpMatmul(topology_->num_devices()), options);
  EXPECT_EQ(unknown.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("no_such_option"));

  const auto too_many = topology_->Compile(FsdpMatmul(16));
  EXPECT_EQ(too_many.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(too_many.status().message(), HasSubstr("needs 16 devices"));

  Program broken = FsdpMatmul(topology_->num_devices());
  broken.text = "module @m {\n  nonsense\n}";
  const auto parse = topology_->Compile(broken);
  EXPECT_EQ(parse.status().code(), StatusCode::kInvalidArgument) << parse.status().ToString();
  EXPECT_THAT(parse.status().message(),
              AllOf(HasSubstr("-:2:3"), testing::Not(HasSubstr("StableHLO v"))));
}

TEST(TopologyAot, SlicesAreAnOptionAndUnknownNamesAreErrors) {
  const auto plugin = LoadPluginOfKind("tpu");
  if (!plugin.ok()) GTEST_SKIP() << plugin.error().message();
  const auto two = Topology::Create(*plugin, "v5p:2x2x1", {{"num_slices", int64_t{2}}});
  ASSERT_TRUE(two.ok()) << two.status().ToString();
  EXPECT_EQ((*two)->num_devices(), 8);
  EXPECT_THAT(FindTopology("v99:1x1").status().message(), HasSubstr("topology 'v99:1x1'"));
  EXPECT_THAT(FindTopology("v5p:2x2x1", {{"foo", int64_t{1}}}).status().message(),
              HasSubstr("foo"));
  EXPECT_EQ(FindTopology("v5p").status().code(), StatusCode::kInvalidArgument);
}

TEST(TopologyAot, AProgramLargerThanTheDeviceIsResourceExhausted) {
  const auto plugin = LoadPluginOfKind("tpu");
  if (!plugin.ok()) GTEST_SKIP() << plugin.error().message();
  const auto topology = Topology::Create(*plugin, "v5e:1x1");
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  const TensorType huge{DType::kF32, {8, 1024, 1024, 1024}};  // 32 GiB on a 16 GB device
  const Program program{.name = "huge",
                        .text = R"(module @huge {
  func.func public @main(%x: tensor<8x1024x1024x1024xf32>) -> tensor<8x1024x1024x1024xf32> {
    %y = stablehlo.add %x, %x : tensor<8x1024x1024x1024xf32>
    return %y : tensor<8x1024x1024x1024xf32>
  }
})",
                        .mesh = {},
                        .arguments = {Value("x", huge)},
                        .results = {Value("y", huge)},
                        .custom_calls = {}};
  EXPECT_EQ((*topology)->Compile(program).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ulmus::pjrt
