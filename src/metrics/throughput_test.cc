#include "metrics/throughput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ulmus::metrics {
namespace {

using ::testing::HasSubstr;

TEST(DevicePeak, IsFoundByTheNameThatPjrtGives) {
  const std::pair<std::string, double> cases[] = {
      {"TPU v4", 275e12},
      {"TPU v5 lite", 197e12},
      {"TPU v5", 459e12},  // v5p
      {"TPU v6 lite", 918e12},
      {"TPU7x", 1153.5e12},
      {"NVIDIA H100 80GB HBM3", 989.5e12},
      {"NVIDIA H100 PCIe", 756.5e12},
      {"NVIDIA H100 NVL", 835.5e12},
      {"NVIDIA H200", 989.5e12},
      {"NVIDIA B200", 2.25e15},
      {"NVIDIA A100-SXM4-80GB", 312e12},
      {"NVIDIA A100 80GB PCIe", 312e12},
  };
  for (const auto& [kind, peak] : cases) {
    const DevicePeak* found = FindDevicePeak(kind);
    ASSERT_NE(found, nullptr) << kind;
    EXPECT_EQ(found->bf16_flops_per_s, peak) << kind;
    EXPECT_FALSE(found->source.empty());
  }
}

TEST(DevicePeak, IsNotGuessed) {
  for (const char* kind : {"cpu", "", "TPU", "TPU v4 lite", "TPU v99", "NVIDIA", "NVIDIA H1000",
                           "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA GeForce RTX 4090"})
    EXPECT_EQ(FindDevicePeak(kind), nullptr) << kind;
}

TEST(Mfu, IsTheShareOfThePeakOfAllDevices) {
  // OLMo 3 7B at 8,192: 49,376,944,128 FLOPs per token (OLMo-core's formula); 7,700 tokens/s per
  // H100.
  const MfuInput input{
      .tokens_per_s = 7700 * 512.0,
      .flops_per_token = 49'376'944'128.0,
      .num_devices = 512,
      .peak_flops_per_s = FindDevicePeak("NVIDIA H100 80GB HBM3")->bf16_flops_per_s};
  EXPECT_NEAR(*Mfu(input), 0.3842, 1e-4);
}

TEST(Mfu, IsNotKnownWithoutPeakOrWork) {
  const MfuInput known{
      .tokens_per_s = 1, .flops_per_token = 1, .num_devices = 1, .peak_flops_per_s = 1};
  EXPECT_EQ(Mfu(known), 1.0);
  MfuInput input = known;
  input.peak_flops_per_s = 0;
  EXPECT_EQ(Mfu(input), std::nullopt);
  input = known;
  input.tokens_per_s = 0;
  EXPECT_EQ(Mfu(input), std::nullopt);
  input = known;
  input.flops_per_token = 0;
  EXPECT_EQ(Mfu(input), std::nullopt);
}

TEST(ReadMemoryUse, GrowsWithMemoryThatIsUsed) {
  const Result<MemoryUse> before = ReadMemoryUse();
  ASSERT_TRUE(before.ok()) << before.error().message();
  EXPECT_GT(before->resident_bytes, 0);
  EXPECT_GE(before->peak_resident_bytes, before->resident_bytes);
  constexpr int64_t kBytes = 64 << 20;
  std::vector<char> memory(kBytes, 'x');
  const Result<MemoryUse> after = ReadMemoryUse();
  EXPECT_EQ(memory[kBytes / 2], 'x');
  EXPECT_GT(after->resident_bytes, before->resident_bytes + kBytes / 2);
}

TEST(ReadMachineMemory, IsTheTotal) {
  const TempDir folder;
  ASSERT_EQ(WriteFileAtomic(folder.path() / "meminfo", "MemTotal:   2048 kB\nMemFree: 1 kB\n"),
            Status());
  EXPECT_EQ(ReadMachineMemory(folder.path() / "meminfo").value_or(0), 2048 * 1024);
  EXPECT_GT(ReadMachineMemory().value_or(0), ReadMemoryUse()->resident_bytes);
}

TEST(ReadMemoryUse, SaysWhatIsMissing) {
  const TempDir folder;
  ASSERT_EQ(WriteFileAtomic(folder.path() / "status", "VmRSS:\t  12 kB\nVmHWM:\tlots\n"), Status());
  const Result<MemoryUse> use = ReadMemoryUse(folder.path() / "status");
  EXPECT_EQ(use.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(use.status().message(), HasSubstr("VmHWM:"));
}

}  // namespace
}  // namespace ulmus::metrics
