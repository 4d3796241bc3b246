// The estimate of memory against what the compiler planned and what a process really takes, as
// training compiles its step.
#include "train/memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "data/batch.h"
#include "kernels/table.h"
#include "metrics/jsonl.h"
#include "metrics/throughput.h"
#include "nn/olmo3/sharding.h"
#include "pjrt/testing.h"
#include "train/loop.h"
#include "train/run_config.h"
#include "train/trainer.h"

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

// ---- resident memory: each measurement in a process of its own, whose peak is nobody else's ----

// Large enough that threads, packed operands and the allocator's rest are below 2 %.
const std::vector<Case>& MeasuredCases() {
  static const std::vector<Case> cases = [] {
    const auto sized = [](int64_t layers, std::initializer_list<std::string> more) {
      std::vector<std::string> flags = {"model.hidden_size=512",
                                        "model.intermediate_size=1408",
                                        "model.num_heads=8",
                                        "model.num_kv_heads=8",
                                        "model.head_dim=64",
                                        "model.vocab_size=8192",
                                        "model.max_position_embeddings=256",
                                        "data.sequence_length=256",
                                        fmt::format("model.num_layers={}", layers)};
      flags.insert(flags.end(), more);
      return flags;
    };
    return std::vector<Case>{
        {"tiny", sized(8, {"data.global_batch=4", "train.remat=none"})},
        {"tiny", sized(8, {"data.global_batch=16", "train.remat=full", "train.microbatches=2"})},
        {"tiny",
         sized(4, {"data.global_batch=8", "train.remat=save_attention", "train.dtype=bfloat16"})}};
  }();
  return cases;
}

constexpr const char* kChild = "ULMUS_MEASURED_CASE";
constexpr int64_t kSteps = 3;
constexpr double kInf = std::numeric_limits<double>::infinity();

RunConfig ConfigOf(const Case& c) {
  const auto recipe = ResolveRun(c.preset, c.flags);
  CHECK(recipe.ok(), "{}", recipe.status().message());
  auto config = ConfigFromRecipe(*recipe);
  CHECK(config.ok(), "{}", config.status().message());
  return *std::move(config);
}

// What the process holds, without what the allocator could give back.
int64_t ResidentBytes() {
  malloc_trim(0);
  const auto use = metrics::ReadMemoryUse();
  CHECK(use.ok(), "{}", use.status().message());
  return use->resident_bytes;
}

// The high-water mark begins again at what is resident now.
void ResetPeak() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5 << std::flush;
  CHECK(file.good(), "cannot reset the high-water mark");
}

void RunSteps(Trainer& trainer, int64_t steps) {
  const StepOptions& step = trainer.options().step;
  std::vector<int64_t> rows(static_cast<size_t>(step.global_batch));
  data::Batch batch = data::MakeBatch(rows, step.sequence_length, {});
  for (int64_t i = 0; i < batch.tokens.num_elements(); ++i) {
    batch.tokens.Set(i, static_cast<double>((7 * i * i + 3 * i + 5) % 8191));
    batch.loss_mask.Set(i, 1);
  }
  for (int64_t i = 0; i < steps; ++i) {
    ASSERT_TRUE(trainer.Upload(batch).ok());
    ASSERT_TRUE(trainer.Start(1e-3, {.loss = kInf, .grad_norm = kInf}).ok());
    const auto metrics = trainer.Finish();
    ASSERT_TRUE(metrics.ok()) << metrics.status().message();
    EXPECT_TRUE(metrics->applied);
  }
}

TEST(MemoryChild, Measures) {
  const char* which = std::getenv(kChild);
  if (which == nullptr) GTEST_SKIP() << "run by Memory.EstimateMatchesTheProcess";
  const RunConfig config = ConfigOf(MeasuredCases().at(std::stoul(which)));
  const auto client = pjrt::SharedDefaultClient(1);
  ASSERT_TRUE(client.ok());
  auto trainer = Trainer::Create(
      **client, {.model = config.model, .step = config.step_options(), .eval_batch = 1}, nullptr);
  ASSERT_TRUE(trainer.ok()) << trainer.status().message();
  const int64_t before = ResidentBytes();
  ASSERT_TRUE((*trainer)->Initialize(config.init()).ok());
  const int64_t state = ResidentBytes() - before;
  ResetPeak();
  RunSteps(**trainer, kSteps);
  const auto use = metrics::ReadMemoryUse();
  ASSERT_TRUE(use.ok());
  fmt::print("state={} peak={}\n", state, use->peak_resident_bytes - before);
}

struct Measured {
  int64_t state = 0, peak = 0;
};

Measured Measure(size_t which) {
  // Large blocks are given back when they are freed, so that blocks of the compiler's cannot be
  // taken for the program's.
  const std::string command =
      fmt::format("MALLOC_MMAP_THRESHOLD_=65536 {}={} '{}' --gtest_filter=MemoryChild.*", kChild,
                  which, std::filesystem::read_symlink("/proc/self/exe").string());
  FILE* child = popen(command.c_str(), "r");
  CHECK(child != nullptr, "popen");
  std::string output;
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), child))
    output.append(buffer.data(), n);
  EXPECT_EQ(pclose(child), 0) << output;
  const size_t state = output.find("state="), peak = output.find("peak=");
  if (peak == std::string::npos) {
    ADD_FAILURE() << output;
    return {};
  }
  return {std::strtoll(output.c_str() + state + 6, nullptr, 10),
          std::strtoll(output.c_str() + peak + 5, nullptr, 10)};
}

TEST(Memory, EstimateMatchesTheProcess) {
  if (!pjrt::SharedDefaultClient(1).ok())
    GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
  for (size_t which = 0; which < MeasuredCases().size(); ++which) {
    const Case& c = MeasuredCases()[which];
    const RunConfig config = ConfigOf(c);
    const MemoryEstimate estimate = EstimateMemory(config.model, config.step_options(), {});
    const Measured measured = Measure(which);
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    fmt::print(
        "{}\n  estimated: weights {:.1f} + moments {:.1f} + batch {:.1f} + gradients {:.1f} + "
        "activations {:.1f} = {:.1f} MiB\n  measured:  state {:.1f}, peak {:.1f} MiB\n",
        fmt::join(c.flags, " "), mib(estimate.weights), mib(estimate.moments), mib(estimate.batch),
        mib(estimate.gradients), mib(estimate.activations), mib(estimate.total()),
        mib(measured.state), mib(measured.peak));
    EXPECT_NEAR(mib(measured.state), mib(estimate.state()), 0.02 * mib(estimate.state()));
    EXPECT_NEAR(mib(measured.peak), mib(estimate.total()), 0.1 * mib(measured.peak));
  }
}

// The whole loop with its saves. A leak of one batch a step, 0.6 KiB, is below what can be seen,
// one of a weight is not.
TEST(Memory, ResidentMemoryStaysFlat) {
  if (!pjrt::SharedDefaultClient(1).ok())
    GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
  const TempDir temp;
  std::string tokens;
  for (uint32_t i = 0; i < 40000; ++i)
    tokens.append({static_cast<char>(i * i % 251), static_cast<char>(i % 15), 0, 0});
  ASSERT_TRUE(WriteFileAtomic(temp.path() / "a.npy", tokens).ok());
  auto recipe = ResolveRun(
      "tiny", {fmt::format("data.paths=[\"{}\"]", (temp.path() / "a.npy").string()),
               "data.global_batch=2", "data.sequence_length=64", "train.steps=300",
               "checkpoint.every=50", "checkpoint.keep_last=1", "metrics.log_every=100"});
  ASSERT_TRUE(recipe.ok()) << recipe.status().message();
  RunRequest request;
  request.run_dir = temp.path() / "run";
  auto opened = OpenRun(*std::move(recipe), request, Run::Clock::now());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const auto summary = Train(*opened->run);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  std::map<int64_t, double> resident;
  ASSERT_TRUE(
      metrics::ReadMetrics(temp.path() / "run/metrics.jsonl",
                           [&](const metrics::Record& record) -> Status {
                             if (const auto* step = std::get_if<metrics::StepRecord>(&record))
                               resident[step->step] = static_cast<double>(step->resident_bytes);
                             return {};
                           })
          .ok());
  fmt::print("resident after 100 steps {:.1f} MiB, after 300 {:.1f} MiB\n",
             resident.at(100) / (1 << 20), resident.at(300) / (1 << 20));
  EXPECT_NEAR(resident.at(300), resident.at(100), 0.01 * resident.at(100));
}

}  // namespace
}  // namespace ulmus::train
