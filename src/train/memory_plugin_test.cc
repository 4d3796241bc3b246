// The estimate of memory against what the compiler planned, as training compiles its step.
#include "train/memory.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/table.h"
#include "nn/olmo3/sharding.h"
#include "pjrt/testing.h"
#include "train/run_config.h"

namespace ulmus::train {
namespace {

struct Case {
  const char* preset;
  std::vector<std::string> flags;
};

// 10 %, as promised in memory.h.
TEST(Memory, EstimateMatchesTheCompiler) {
  const auto client = pjrt::SharedDefaultClient(1);
  if (!client.ok()) GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
  ASSERT_TRUE(pjrt::RegisterCustomCalls((*client)->plugin(), kernels::AllKernels()).ok());
  for (const auto& [preset, flags] :
       {Case{"tiny", {}}, Case{"reference_run", {}}, Case{"reference_run", {"train.remat=full"}},
        Case{"demo", {}}}) {
    SCOPED_TRACE(fmt::format("{} {}", preset, fmt::join(flags, " ")));
    const auto recipe = ResolveRun(preset, flags);
    ASSERT_TRUE(recipe.ok()) << recipe.status().message();
    const auto config = ConfigFromRecipe(*recipe);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const StepOptions options = config->step_options();
    const auto program =
        StepProgram(config->model, options, {}, nn::olmo3::DefaultRules(config->model, {}),
                    {.platform = "cpu", .use_kernels = true});
    ASSERT_TRUE(program.ok()) << program.status().message();
    const auto executable = (*client)->Compile(*program);
    ASSERT_TRUE(executable.ok()) << executable.status().message();
    const pjrt::MemoryStats measured = (*executable)->memory_stats();
    const MemoryEstimate estimate = EstimateMemory(config->model, options, {});
    // Five scalars and the metrics are not worth a line of the estimate.
    EXPECT_LE(std::abs(measured.argument_bytes - estimate.state() - estimate.batch), 64);
    const double ratio =
        static_cast<double>(estimate.total()) / static_cast<double>(measured.TotalBytes());
    EXPECT_NEAR(ratio, 1, 0.1) << estimate.total() << " estimated, " << measured.TotalBytes()
                               << " planned";
    RecordProperty(fmt::format("{}_{}", preset, fmt::join(flags, "_")), fmt::format("{}", ratio));
    fmt::print("{} {}: estimate / planned = {:.3f}\n", preset, fmt::join(flags, " "), ratio);
  }
}

}  // namespace
}  // namespace ulmus::train
