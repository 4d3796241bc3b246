// The example's step program compiled for hardware that is not here: the same text for TPU and GPU.
#include <gtest/gtest.h>

#include <ostream>

#include "pjrt/topology.h"
#include "residual_mlp/model.h"

namespace ulmus::residual_mlp {
namespace {

struct Target {
  const char* topology;
  const char* plugin;  // kind
};

void PrintTo(const Target& target, std::ostream* os) { *os << target.topology; }

class Aot : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    const auto plugin = pjrt::LoadPluginOfKind(GetParam().plugin);
    if (!plugin.ok())
      GTEST_SKIP() << "no " << GetParam().plugin << " plugin: " << plugin.error().message();
  }
  static Config ConfigFor(int64_t fsdp, int64_t tensor) {
    Config config;
    config.mesh = {.fsdp = fsdp, .tensor = tensor};
    return config;
  }
  // Compiles and checks that the state is updated in place and remat saves memory there too.
  static void Compile(const Config& config) {
    const auto topology = pjrt::FindTopology(GetParam().topology);
    ASSERT_TRUE(topology.ok()) << topology.error().message();
    const Program program = TrainStep(config);
    const auto compiled = (*topology)->Compile(program);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message();
    int64_t state_bytes = 0;
    for (const ProgramValue& argument : program.arguments) {
      if (argument.donated_to < 0) continue;
      state_bytes += TensorType{argument.type.dtype,
                                LocalShape(program.mesh, argument.type.shape, argument.sharding)}
                         .size_bytes();
    }
    const pjrt::MemoryStats memory = compiled->memory_stats();
    EXPECT_GE(memory.alias_bytes, state_bytes);
    EXPECT_GT(memory.temp_bytes, 0);
    EXPECT_GT(*compiled->ComputeSerializedBytes(), 0);
    std::printf(
        "%s: compiled in %.1f s, per device %ld KiB arguments, %ld KiB aliased, %ld KiB "
        "temporaries\n",
        GetParam().topology, compiled->compile_s(), memory.argument_bytes / 1024,
        memory.alias_bytes / 1024, memory.temp_bytes / 1024);
  }
};

TEST_P(Aot, StepOfFourDevicesCompiles) { Compile(ConfigFor(2, 2)); }

TEST_P(Aot, StepOfAllDevicesCompiles) {
  const auto topology = pjrt::FindTopology(GetParam().topology);
  ASSERT_TRUE(topology.ok()) << topology.error().message();
  Compile(ConfigFor((*topology)->num_devices() / 2, 2));
}

INSTANTIATE_TEST_SUITE_P(Targets, Aot,
                         testing::Values(Target{"v5p:2x2x1", "tpu"}, Target{"tpu7x:2x2x1", "tpu"},
                                         Target{"h100:1x1x8", "cuda"}),
                         [](const auto& param_info) {
                           std::string name = param_info.param.topology;
                           for (char& c : name) {
                             if (c == ':') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace ulmus::residual_mlp
