// Trains the example network and reports what a run would: plain lines or a bar, metrics.jsonl, one
// JSON line at the end.
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/log.h"
#include "base/stdio.h"
#include "base/stop_signal.h"
#include "kernels/table.h"
#include "residual_mlp/model.h"
#include "residual_mlp/trainer.h"

namespace ulmus::residual_mlp {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string recipe, run_dir, plugin;
  std::vector<std::string> set;
  bool json = false, print_program = false, cache = true, overwrite = false;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The run directory: recipe.toml, metrics.jsonl, log.txt, LOCK. Opened when nothing but the
// training itself can fail any more; without a path nothing is written.
class RunDirectory {
 public:
  static Result<RunDirectory> Open(const std::string& path, bool overwrite, const Recipe& recipe) {
    RunDirectory run;
    if (path.empty()) return run;
    run.path_ = path;
    TRY(CreateDirectories(run.path_));
    run.lock_ = TRY(FileLock::Acquire(run.path_ / "LOCK"));
    std::error_code error;
    for (const char* name : {"metrics.jsonl", "log.txt"}) {
      const Path file = run.path_ / name;
      if (!std::filesystem::exists(file, error)) continue;
      if (!overwrite) {
        return FailedPreconditionError(
            "{} holds a run already ({}); name another --run-dir, or start over with --overwrite",
            path, name);
      }
      std::filesystem::remove(file, error);
    }
    TRY(WriteFileAtomic(run.path_ / "recipe.toml", recipe.ToToml({.origins = true, .help = true})));
    TRY(SetLogFile(run.path_ / "log.txt"));
    run.metrics_.reset(std::fopen((run.path_ / "metrics.jsonl").c_str(), "w"));
    if (!run.metrics_) return ErrnoError(errno, run.path_ / "metrics.jsonl", "write");
    return run;
  }

  Status Record(const Json& record) {
    if (!metrics_) return {};
    const std::string line = record.dump() + "\n";
    if (std::fwrite(line.data(), 1, line.size(), metrics_.get()) != line.size() ||
        std::fflush(metrics_.get()) != 0) {
      return ErrnoError(errno, path_ / "metrics.jsonl", "write");
    }
    return {};
  }

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  Path path_;
  std::optional<FileLock> lock_;
  std::unique_ptr<std::FILE, Close> metrics_;
};

Result<Recipe> ResolveRecipe(const Options& options) {
  RecipeInput input;
  if (!options.recipe.empty()) input.file = TRY(ReadRecipeFile(options.recipe));
  input.flags = options.set;
  return Recipe::Resolve(ConfigSchema(), input);
}

void LogStart(const Config& config, const Trainer& trainer, const Text& text, double start_s) {
  int64_t num_parameters = 0;
  for (const ParameterSpec& spec : Parameters(config))
    num_parameters += spec.type.shape.num_elements();
  const pjrt::MemoryStats memory = trainer.executable().memory_stats();
  LogInfo("{} parameters in {} layers, {} bytes of text, mesh {}", num_parameters,
          config.model.num_layers, text.num_bytes(), MeshOf(config).ToString());
  LogInfo(
      "step program {} in {:.2f} s: per device {} KiB arguments, {} KiB of them updated in place, "
      "{} KiB temporaries",
      trainer.executable().from_cache() ? "loaded from the cache" : "compiled",
      trainer.executable().compile_s(), memory.argument_bytes / 1024, memory.alias_bytes / 1024,
      memory.temp_bytes / 1024);
  LogInfo("ready {:.2f} s after start", start_s);
}

int64_t PhysicalMemoryBytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// All virtual devices share this machine's memory.
Status CheckFits(int64_t bytes, std::string_view what) {
  const int64_t memory = PhysicalMemoryBytes();
  if (bytes <= memory) return {};
  return InvalidArgumentError(
      "{} needs {} MiB, this machine has {} MiB; lower train.batch_size or the sizes of [model]",
      what, bytes >> 20, memory >> 20);
}

Status CheckState(const Config& config) {
  int64_t bytes = 0;
  for (const ParameterSpec& spec : Parameters(config)) bytes += 3 * spec.type.size_bytes();
  return CheckFits(bytes, "the state (weights and two moments)");
}

Status CheckMemory(const pjrt::MemoryStats& memory, int64_t num_devices) {
  return CheckFits(memory.TotalBytes() * num_devices, "the step program, on all devices");
}

Result<Json> Train(const Options& options, Clock::time_point process_start) {
  const Recipe recipe = TRY(ResolveRecipe(options));
  const Config config = ReadConfig(recipe);
  TRY(ValidateConfig(config));
  if (options.print_program) {
    std::fputs(TrainStep(config).text.c_str(), stdout);
    return Json();
  }
  TRY(CheckState(config));
  const Text text = TRY(Text::Load(config));
  const auto plugin = TRY(pjrt::LoadDefaultCpuPlugin({.flag = options.plugin, .recipe = ""}));
  if (plugin->kind() != "cpu") {
    return InvalidArgumentError(
        "{} is a {} plugin; this program runs on virtual CPU devices: `ulmus devices` lists the "
        "CPU plugins",
        plugin->path(), plugin->kind());
  }
  TRY(pjrt::RegisterCustomCalls(*plugin, kernels::AllKernels()));
  const auto client = TRY(
      pjrt::Client::Create(plugin, {.num_devices = MeshOf(config).num_devices(), .options = {}}));
  pjrt::CompilationCache cache;
  const auto trainer = TRY(Trainer::Create(*client, config, options.cache ? &cache : nullptr));
  TRY(CheckMemory(trainer->executable().memory_stats(), MeshOf(config).num_devices()));
  RunDirectory run = TRY(RunDirectory::Open(options.run_dir, options.overwrite, recipe));
  const double ready_s = SecondsSince(process_start);
  LogStart(config, *trainer, text, ready_s);

  Json last;
  double first_step_s = 0;
  const auto record = [&](const StepMetrics& metrics) -> Status {
    if (metrics.step == 1) first_step_s = SecondsSince(process_start);
    if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm)) {
      return FailedPreconditionError(
          "step {}: loss {}, gradient norm {}; stopped, since nothing after it can be right: lower "
          "optim.lr or "
          "raise optim.warmup_steps",
          metrics.step, metrics.loss, metrics.grad_norm);
    }
    last = {{"step", metrics.step}, {"loss", metrics.loss}, {"grad_norm", metrics.grad_norm}};
    return run.Record(last);
  };
  const TextBatch held_out = text.HeldOutBatch();
  double held_out_loss = TRY(trainer->Evaluate(held_out));
  LogInfo("step 0: held-out loss {:.4f} nats per byte (ln 256 = 5.5452 for a guess)",
          held_out_loss);
  const Clock::time_point start = Clock::now();
  Progress progress("train", config.train.steps, {.unit = "steps"});
  for (int64_t step = 1; step <= config.train.steps; ++step) {
    if (const auto metrics = TRY(trainer->Step(text.TrainBatch(step)))) TRY(record(*metrics));
    progress.Update(step);
    if (StopRequested()) {
      progress.Finish();
      return CancelledError(
          "stopped by {} after step {}; this example keeps no checkpoint, metrics are complete up "
          "to step {}",
          StopSignalName(), step, step - 1);
    }
    if (step % config.train.eval_interval != 0 && step != config.train.steps) continue;
    if (const auto metrics = TRY(trainer->Finish())) TRY(record(*metrics));
    held_out_loss = TRY(trainer->Evaluate(held_out));
    LogInfo("step {}: loss {:.4f}, held-out {:.4f}, gradient norm {:.3f}", step,
            last["loss"].get<double>(), held_out_loss, last["grad_norm"].get<double>());
    TRY(run.Record({{"step", step}, {"held_out_loss", held_out_loss}}));
  }
  progress.Finish();
  const double seconds = SecondsSince(start);
  last["held_out_loss"] = held_out_loss;
  last["examples_per_s"] =
      static_cast<double>(config.train.steps * config.train.batch_size) / seconds;
  last["first_step_s"] = first_step_s;
  last["from_cache"] = trainer->executable().from_cache();
  LogInfo("{} steps in {:.1f} s, {:.0f} examples/s", config.train.steps, seconds,
          last["examples_per_s"].get<double>());
  return last;
}

int Main(int argc, char** argv) {
  const Clock::time_point process_start = Clock::now();
  ReserveStandardStreams();
  Options options;
  CLI::App app(
      "Trains a residual network on bytes of text, on virtual CPU devices (8 unless the mesh says "
      "otherwise).",
      "residual_mlp");
  app.add_option("recipe", options.recipe, "TOML file; every key has a default");
  app.add_option("--set", options.set, "key=value, over the recipe; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--run-dir", options.run_dir, "where recipe.toml, metrics.jsonl and log.txt go");
  app.add_option("--plugin", options.plugin,
                 "PJRT CPU plugin: a path or the name of an installed wheel");
  bool no_cache = false;
  app.add_flag("--no-cache", no_cache,
               "compile anew instead of using the cache of compiled programs");
  app.add_flag("--overwrite", options.overwrite, "start over in a --run-dir that holds a run");
  app.add_flag("--print-program", options.print_program, "print the step's StableHLO and stop");
  app.add_flag("--json", options.json, "print the last metrics as one line of JSON");
  app.footer(
      "Example: residual_mlp --run-dir runs/demo --set train.steps=100 --set mesh.fsdp=8 --set "
      "mesh.tensor=1");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kExitUsage;
    return FlushStandardOutput().ok() ? kExitOk : kExitFailure;
  }
  options.cache = !no_cache;
  CatchStopSignals();
  const Result<Json> result = Train(options, process_start);
  if (!result.ok()) {
    LogError("{}", result.error().message());
    return ExitCodeFor(result.error());
  }
  if (options.json && !result->is_null()) fmt::print("{}\n", result->dump());
  if (const Status written = FlushStandardOutput(); !written.ok()) {
    LogError("{}", written.message());
    return ExitCodeFor(written);
  }
  return kExitOk;
}

}  // namespace
}  // namespace ulmus::residual_mlp

int main(int argc, char** argv) { return ulmus::residual_mlp::Main(argc, argv); }
