// What the engine promises, shown on the example: sharding, rematerialisation, donation and memory.
#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "kernels/table.h"
#include "pjrt/testing.h"
#include "residual_mlp/model.h"
#include "residual_mlp/trainer.h"

namespace ulmus::residual_mlp {
namespace {

Config SmallConfig(int64_t fsdp, int64_t tensor) {
  Config config;
  config.model.num_layers = 4;
  config.model.context_bytes = 8;
  config.model.embedding_width = 8;
  config.model.hidden_width = 256;
  config.train.batch_size = 64;
  config.mesh = {.fsdp = fsdp, .tensor = tensor};
  config.data.paths = {std::string(std::getenv("ULMUS_SOURCE_DIR")) + "/LICENSE"};
  return config;
}

Text LoadText(const Config& config) {
  Result<Text> text = Text::Load(config);
  CHECK(text.ok(), "{}", text.error().message());
  return *std::move(text);
}

std::vector<double> Losses(pjrt::Client& client, const Config& config, int64_t steps) {
  const Text text = LoadText(config);
  auto trainer = Trainer::Create(client, config);
  CHECK(trainer.ok(), "{}", trainer.error().message());
  std::vector<double> losses;
  const auto add = [&](const Result<std::optional<StepMetrics>>& metrics) {
    CHECK(metrics.ok(), "{}", metrics.error().message());
    if (*metrics) losses.push_back((*metrics)->loss);
  };
  for (int64_t step = 1; step <= steps; ++step) add((*trainer)->Step(text.TrainBatch(step)));
  add((*trainer)->Finish());
  return losses;
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class ResidualMlp : public testing::TestWithParam<pjrt::PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed (make setup)";
  }
  pjrt::Client& ClientOf(int64_t devices) {
    const Result<pjrt::Client*> client = pjrt::SharedClient(GetParam(), devices);
    CHECK(client.ok(), "{}", client.error().message());
    return **client;
  }
  pjrt::MemoryStats StepMemory(const Config& config) {
    const auto executable = ClientOf(MeshOf(config).num_devices()).Compile(TrainStep(config));
    CHECK(executable.ok(), "{}", executable.error().message());
    return (*executable)->memory_stats();
  }
};

TEST_P(ResidualMlp, LossesOfOneDeviceAndOfFourByTwoAgreeOverFiftySteps) {
  const std::vector<double> one = Losses(ClientOf(1), SmallConfig(1, 1), 50),
                            eight = Losses(ClientOf(8), SmallConfig(4, 2), 50);
  ASSERT_EQ(one.size(), 50u);
  ASSERT_EQ(eight.size(), 50u);
  double worst = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    const double difference = std::fabs(eight[i] - one[i]) / one[i];
    EXPECT_LE(difference, 1e-6) << "step " << i + 1 << ": " << one[i] << " on one device, "
                                << eight[i] << " on eight";
    worst = std::max(worst, difference);
  }
  RecordProperty("largest_relative_difference", std::to_string(worst));
  EXPECT_LT(one.back(), 0.8 * one.front()) << "it does not learn";
}

TEST_P(ResidualMlp, RematHalvesTemporariesOfSixteenLayers) {
  for (const auto& [fsdp, tensor] : {std::pair<int64_t, int64_t>{1, 1}, {4, 2}}) {
    Config config = SmallConfig(fsdp, tensor);
    config.model.num_layers = 16;
    config.train.batch_size = 2048;
    config.model.remat = false;
    const int64_t kept = StepMemory(config).temp_bytes;
    config.model.remat = true;
    const int64_t recomputed = StepMemory(config).temp_bytes;
    EXPECT_GE(kept, 2 * recomputed) << "mesh " << fsdp << "x" << tensor << ": temporaries " << kept
                                    << " kept, " << recomputed << " with remat";
    RecordProperty(fmt::format("temp_bytes_{}x{}", fsdp, tensor),
                   fmt::format("{} / {}", kept, recomputed));
  }
}

TEST_P(ResidualMlp, RematChangesNoLoss) {
  Config config = SmallConfig(1, 1);
  const std::vector<double> with = Losses(ClientOf(1), config, 5);
  config.model.remat = false;
  const std::vector<double> without = Losses(ClientOf(1), config, 5);
  for (size_t i = 0; i < with.size(); ++i)
    EXPECT_NEAR(with[i], without[i], 1e-6 * without[i]) << "step " << i + 1;
}

TEST_P(ResidualMlp, KernelsChangeNoLoss) {
  ASSERT_TRUE(pjrt::RegisterCustomCalls(ClientOf(8).plugin(), kernels::AllKernels()).ok());
  Config config = SmallConfig(4, 2);
  const std::vector<double> plain = Losses(ClientOf(8), config, 5);
  config.model.kernels = true;
  EXPECT_FALSE(TrainStep(config).custom_calls.empty());
  const std::vector<double> with_kernels = Losses(ClientOf(8), config, 5);
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_NEAR(with_kernels[i], plain[i], 1e-5 * plain[i]) << "step " << i + 1;
}

TEST_P(ResidualMlp, StateIsUpdatedInPlace) {
  const Config config = SmallConfig(4, 2);
  const Text text = LoadText(config);
  auto trainer = Trainer::Create(ClientOf(8), config);
  ASSERT_TRUE(trainer.ok()) << trainer.error().message();
  int64_t state_bytes = 0;
  std::vector<const void*> before;
  for (pjrt::ShardedArray& array : (*trainer)->state()) {
    state_bytes += array.local_type().size_bytes();
    for (int64_t i = 0; i < array.num_shards(); ++i)
      before.push_back(*array.shard(i).UnsafePointer());
  }
  EXPECT_EQ((*trainer)->executable().memory_stats().alias_bytes, state_bytes);
  ASSERT_TRUE((*trainer)->Step(text.TrainBatch(1)).ok());
  ASSERT_TRUE((*trainer)->Finish().ok());
  size_t next = 0;
  for (pjrt::ShardedArray& array : (*trainer)->state()) {
    for (int64_t i = 0; i < array.num_shards(); ++i)
      EXPECT_EQ(*array.shard(i).UnsafePointer(), before[next++]) << "a buffer moved";
  }
}

TEST_P(ResidualMlp, ResidentSetIsFlatOverAThousandSteps) {
  Config config = SmallConfig(4, 2);
  config.model.num_layers = 2;
  config.model.hidden_width = 64;
  const Text text = LoadText(config);
  auto trainer = Trainer::Create(ClientOf(8), config);
  ASSERT_TRUE(trainer.ok()) << trainer.error().message();
  // The least of 200 steps, early and late: what a step needs for a moment does not count.
  int64_t early = std::numeric_limits<int64_t>::max(), late = early;
  for (int64_t step = 1; step <= 1000; ++step) {
    ASSERT_TRUE((*trainer)->Step(text.TrainBatch(step)).ok());
    if (step > 200 && step <= 400) early = std::min(early, ResidentBytes());
    if (step > 800) late = std::min(late, ResidentBytes());
  }
  const int64_t growth = late - early;
  // 600 steps on 8 devices: a leak of 512 bytes per step and device would show.
  EXPECT_LT(growth, int64_t{2} << 20) << "resident set grew by " << growth << " bytes";
  RecordProperty("resident_growth_bytes", std::to_string(growth));
}

INSTANTIATE_TEST_SUITE_P(CpuPlugins, ResidualMlp, testing::ValuesIn(pjrt::KnownCpuPlugins()),
                         [](const auto& param_info) { return pjrt::TestName(param_info.param); });

}  // namespace
}  // namespace ulmus::residual_mlp
