// The 7B's forward and backward pass compiled for TPUs that are not here.
#include <gtest/gtest.h>

#include "nn/olmo3/testing/golden.h"
#include "pjrt/topology.h"

namespace ulmus::nn::olmo3 {
namespace {

Program SevenBillion(const std::vector<LayerType>& pattern) {
  Config config = *ConfigByName("7b");
  config.layer_pattern = pattern;
  LossProgramOptions options{.mesh = Mesh({{"fsdp", 4}}), .B = 4, .T = 8192};
  options.forward = {.dtype = DType::kBF16, .remat = "full"};
  return LossProgram(config, options)->ToProgram({.platform = "tpu"});
}

// The whole program as text, as trained: it holds one group of layers, however many there are.
TEST(ModelAot, SevenBillionLowersToOneGroupOfLayers) {
  const std::string text = SevenBillion(ConfigByName("7b")->layer_pattern).text;
  EXPECT_GT(text.size(), 50u << 10);
  EXPECT_LT(text.size(), 1u << 20);
  EXPECT_NE(text.find("tensor<8x4096x4096xf32>"), std::string::npos) << "q_proj of eight groups";
}

// All 32 layers as a loop over full ones. Slow, as the suite's name says for `ctest -E Slow`: 85 s
// of processor time on the machine it was written on.
TEST(ModelAotSlow, SevenBillionCompilesForV5p) {
  const auto plugin = pjrt::LoadPluginOfKind("tpu");
  if (!plugin.ok()) GTEST_SKIP() << "no TPU plugin: " << plugin.error().message();
  const auto topology = pjrt::FindTopology("v5p:2x2x1");
  ASSERT_TRUE(topology.ok()) << topology.status().ToString();
  const Program program = SevenBillion({LayerType::kFull});
  const auto compiled = (*topology)->Compile(program);
  ASSERT_TRUE(compiled.ok()) << compiled.status().ToString();
  const pjrt::MemoryStats memory = compiled->memory_stats();
  std::printf(
      "text %zu KiB, compiled in %.1f s, per device %.2f GiB arguments, %.2f GiB "
      "temporaries\n",
      program.text.size() / 1024, compiled->compile_s(),
      static_cast<double>(memory.argument_bytes) / (1 << 30),
      static_cast<double>(memory.temp_bytes) / (1 << 30));
  // A quarter of the weights in f32, the tokens and some slack; everything fits.
  EXPECT_GE(memory.argument_bytes, CountParameters(*ConfigByName("7b"), true).total / 4 * 4);
  EXPECT_LT(memory.TotalBytes(), (*topology)->device_memory_bytes());
}

}  // namespace
}  // namespace ulmus::nn::olmo3
