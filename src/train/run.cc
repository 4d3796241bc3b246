#include "train/run.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/edit_distance.h"
#include "base/log.h"
#include "checkpoint/open.h"
#include "checkpoint/run_checkpoints.h"
#include "metrics/jsonl.h"
#include "metrics/throughput.h"
#include "nn/olmo3/flops.h"
#include "train/checkpoint.h"

namespace ulmus::train {
namespace {

using checkpoint::Newest;
using checkpoint::OpenedStep;

constexpr int64_t kMaxRollbacks = 3;  // without a save between them
constexpr int64_t kMiB = int64_t{1} << 20;

// What the recipe or the command line names and is not there will not be there at the next try.
Status AsUsage(const Status& status) {
  if (status.code() != StatusCode::kNotFound) return status;
  return Status(StatusCode::kInvalidArgument, status.message());
}
template <class T>
Result<T> AsUsage(Result<T> result) {
  if (result.ok()) return result;
  return AsUsage(result.error());
}

// The recipe that the run in this folder began with; nullopt in a new folder.
Result<std::optional<Recipe>> StoredRecipe(const metrics::RunPaths& paths) {
  if (!TRY(PathExists(paths.recipe()))) return std::optional<Recipe>();
  RecipeInput input;
  input.file = TRY(ReadRecipeFile(paths.recipe()));
  return std::optional(TRY(Recipe::Resolve(RunSchema(), input)));
}

// The checkpoint at which nothing is left to do. Looked at without the lock: the folder of a
// complete run stays as it is.
Result<std::optional<OpenedStep>> FindComplete(const metrics::RunPaths& paths,
                                               const RunRequest& request, int64_t last_step) {
  if (request.start_over) return std::optional<OpenedStep>();
  if (request.from) {
    const bool last = *request.from >= last_step;
    OpenedStep opened =
        TRY(AsUsage(checkpoint::OpenStep(paths.checkpoints(), *request.from, {.full = last})));
    return last ? std::optional(std::move(opened)) : std::nullopt;
  }
  const std::vector<int64_t> steps = TRY(checkpoint::ListSteps(paths.checkpoints()));
  if (steps.empty() || steps.back() < last_step) return std::optional<OpenedStep>();
  Result<OpenedStep> opened =
      checkpoint::OpenStep(paths.checkpoints(), steps.back(), {.full = true});
  // A damaged one is dealt with under the lock.
  return opened.ok() ? std::optional(*std::move(opened)) : std::nullopt;
}

// Every byte is verified before a run goes on from it. One that was named must be sound.
Result<Newest> FindCheckpoint(const metrics::RunPaths& paths, const RunRequest& request) {
  if (request.start_over) return Newest();
  if (!request.from) return checkpoint::OpenNewest(paths.checkpoints(), {.full = true});
  Newest named;
  named.opened = TRY(checkpoint::OpenStep(paths.checkpoints(), *request.from, {.full = true}));
  return named;
}

// A run that has saved and lost all of it must not begin anew unasked.
Status CheckNothingLost(const metrics::RunPaths& paths, const Newest& newest) {
  if (!newest.passed_over.empty())
    return DataLossError(
        "{}: no checkpoint is sound, the newest is passed over: {}; bring one back, or begin from "
        "initial weights with --start-over",
        paths.checkpoints().string(), newest.passed_over.front().why);
  if (!TRY(PathExists(paths.metrics()))) return {};
  int64_t saved = -1;
  TRY(metrics::ReadMetrics(paths.metrics(), [&](const metrics::Record& record) -> Status {
    const auto* event = std::get_if<metrics::EventRecord>(&record);
    if (event != nullptr && event->name == metrics::kEventSave) saved = event->step;
    return {};
  }));
  if (saved < 0) return {};
  return DataLossError(
      "{}: no complete checkpoint, but this run saved one at step {}; bring it back, or begin from "
      "initial weights with --start-over",
      paths.checkpoints().string(), saved);
}

// Newer checkpoints than the one asked for no longer follow from it; they are kept under a name
// that does not count.
Status SetAsideNewer(const Path& folder, int64_t step) {
  for (const int64_t other : TRY(checkpoint::ListSteps(folder))) {
    if (other <= step) continue;
    const Path path = checkpoint::StepPath(folder, other);
    Path aside = path;
    aside += ".set-aside";
    for (int64_t n = 2; TRY(PathExists(aside)); ++n) {
      aside = path;
      aside += fmt::format(".set-aside-{}", n);
    }
    std::error_code error;
    std::filesystem::rename(path, aside, error);
    if (error) return ErrnoError(error.value(), path, "rename");
    LogWarning("{} is set aside as {}", path.string(), aside.filename().string());
  }
  return {};
}

Result<TrainState> LoadTrainState(const OpenedStep& opened, const optim::SkipOptions& skip) {
  const std::string text = TRY(opened.reader->LoadTrainState());
  TrainState state =
      TRY(ParseTrainState(text, skip, (opened.path / checkpoint::kTrainStateName).string()));
  if (state.run.step == opened.step) return state;
  return DataLossError("{}: holds step {}; give the folder its own name back", opened.path.string(),
                       state.run.step);
}

int64_t StateBytes(const Trainer& trainer) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < trainer.num_state_tensors(); ++i)
    bytes += trainer.state_layout(i)->type.size_bytes();
  return bytes;
}

// The first save must not be the first to notice.
Status CheckRoom(const Run& run) {
  const int64_t needed = StateBytes(*run.trainer);
  const int64_t free = TRY(FreeDiskBytes(run.paths().root));
  if (free >= needed) return {};
  return ResourceExhaustedError(
      "{}: a checkpoint needs {} bytes, {} are free; make room or choose another --run-dir",
      run.paths().root.string(), needed, free);
}

Status OpenClient(Run& run, const Mesh& mesh) {
  auto loaded = pjrt::LoadDefaultCpuPlugin({.flag = run.request.plugin, .recipe = ""});
  if (!run.request.plugin.empty()) loaded = AsUsage(std::move(loaded));
  auto plugin = TRY(std::move(loaded));
  run.client = TRY(
      pjrt::Client::Create(std::move(plugin), {.num_devices = mesh.num_devices(), .options = {}}));
  return {};
}

Status OpenTrainer(Run& run, const Mesh& mesh) {
  const StepOptions step = run.config.step_options();
  const int64_t microbatch = step.global_batch / step.num_microbatches;
  const int64_t eval_batch = run.config.eval.batch > 0 ? run.config.eval.batch : microbatch;
  run.trainer = TRY(Trainer::Create(
      *run.client,
      {.model = run.config.model, .step = step, .eval_batch = eval_batch, .mesh = mesh},
      run.request.use_cache ? &run.cache : nullptr));
  const pjrt::Executable& program = run.trainer->step_executable();
  LogInfo("step program {} in {:.2f} s",
          program.from_cache() ? "loaded from the cache" : "compiled", program.compile_s());
  return {};
}

// Weights, and with them the moments where asked, of another checkpoint.
Status StartFrom(Run& run) {
  const TrainTable& train = run.config.train;
  const auto opened = TRY(AsUsage(checkpoint::OpenSource(train.start_from)));
  const bool all = train.start_with == "weights_and_moments";
  if (all && opened.format != checkpoint::WeightFormat::kUlmus)
    return InvalidArgumentError(
        "train.start_with = \"{}\": {} holds no moments; start from a checkpoint of a run, or with "
        "\"weights\"",
        train.start_with, opened.path.string());
  TRY(RestoreState(*run.trainer, *opened.tensors, all ? RestoreParts::kAll : RestoreParts::kWeights,
                   opened.path.string()));
  if (all) {
    const auto reader = TRY(checkpoint::NativeReader::Open(opened.path));
    const std::string text = TRY(reader->LoadTrainState());
    const TrainState state = TRY(ParseTrainState(
        text, run.config.skip_options(), (opened.path / checkpoint::kTrainStateName).string()));
    run.state.adam_count = state.run.adam_count;
  }
  LogInfo("starts from {} of {}{}", all ? "weights and moments" : "the weights",
          opened.path.string(),
          all ? fmt::format(", {} updates behind them", run.state.adam_count) : "");
  return run.trainer->SetAdamCount(run.state.adam_count);
}

Status Resume(Run& run, const OpenedStep& opened, const TrainState& saved) {
  run.state = saved.run;
  const Status restored =
      RestoreState(*run.trainer, *opened.reader, RestoreParts::kAll, opened.path.string());
  if (!restored.ok())
    return restored.WithContext(
        fmt::format("{} cannot be restored (there are steps {}, to be named with --from-step)",
                    opened.path.string(),
                    fmt::join(TRY(checkpoint::ListSteps(run.paths().checkpoints())), ", ")));
  run.last_saved = opened.step;
  run.last_checkpoint = opened.path;
  return run.trainer->SetAdamCount(run.state.adam_count);
}

Status FillState(Run& run, const std::optional<OpenedStep>& opened,
                 const std::optional<TrainState>& saved) {
  if (opened) return Resume(run, *opened, *saved);
  run.state.history = optim::SkipHistory(run.config.skip_options());
  if (!run.config.train.start_from.empty()) return StartFrom(run);
  return run.trainer->Initialize(run.config.init());
}

Status OpenLoader(Run& run) {
  run.data.loader.layout = {.num_microbatches = run.config.train.microbatches};
  run.data.loader.end_step = run.last_step;
  run.data.loader.first_step = run.state.step;
  run.loader = TRY(data::Loader::Create(*run.data.source, *run.data.order, run.data.loader));
  return {};
}

std::string PassedOverText(const checkpoint::PassedOver& passed, const OpenedStep& instead) {
  return fmt::format("checkpoint of step {} passed over, step {} taken instead: {}", passed.step,
                     instead.step, passed.why);
}

Status RecordPassedOver(Run& run, const Newest& newest) {
  for (const checkpoint::PassedOver& passed : newest.passed_over)
    TRY(RecordEvent(run, run.state.step, metrics::kEventPassedOver,
                    PassedOverText(passed, *newest.opened)));
  return {};
}

Status OpenRecords(Run& run, const Newest& newest) {
  TRY(WriteFileAtomic(run.paths().recipe(), run.recipe.ToToml({.origins = true, .help = true})));
  run.alarm = metrics::HeldoutAlarm(run.config.alarm_options());
  run.recorder = TRY(metrics::Recorder::Open(
      run.paths(), {.resume_step = run.state.step,
                    .total_steps = run.last_step,
                    .line_interval = run.config.metrics.log_every,
                    .tensorboard = run.config.metrics.tensorboard,
                    .on_kept = [&](const metrics::Record& record) { run.alarm.Add(record); }}));
  if (const int64_t last = run.recorder->repair().last_step; last < run.state.step)
    LogWarning("{}: records of steps {} to {} are missing", run.paths().metrics().string(),
               last + 1, run.state.step);
  TRY(RecordPassedOver(run, newest));
  if (newest.opened)
    return RecordEvent(run, run.state.step, metrics::kEventResume, run.last_checkpoint.string());
  return RecordEvent(run, run.state.step, metrics::kEventStart, run.config.train.start_from);
}

void SetRates(Run& run) {
  const auto formula = nn::olmo3::ParseFlopsFormula(run.config.metrics.flops);
  CHECK(formula.ok(), "metrics.flops = {}", run.config.metrics.flops);
  run.flops_per_token =
      nn::olmo3::ComputeFlopsPerToken(run.config.model, run.config.data.sequence_length, *formula);
  const metrics::DevicePeak* peak =
      metrics::FindDevicePeak(run.client->devices().empty() ? "" : run.client->devices()[0].kind);
  if (peak == nullptr) return;
  run.peak_flops_per_s =
      run.config.train.dtype == "bfloat16" ? peak->bf16_flops_per_s : peak->f32_flops_per_s;
}

void LogRates(const Run& run) {
  std::string formulas;
  for (const nn::olmo3::FlopsFormula formula : nn::olmo3::kAllFlopsFormulas)
    formulas += fmt::format("{}{} {:.4g}", formulas.empty() ? "" : ", ", Name(formula),
                            nn::olmo3::ComputeFlopsPerToken(
                                run.config.model, run.config.data.sequence_length, formula));
  LogInfo("FLOPs per token: {}; FLOP/s and MFU by \"{}\"", formulas, run.config.metrics.flops);
  const std::string kind = run.client->devices().empty() ? "" : run.client->devices()[0].kind;
  const metrics::DevicePeak* peak = metrics::FindDevicePeak(kind);
  if (peak == nullptr)
    LogInfo("MFU: n/a, no published peak for devices of kind \"{}\"", kind);
  else
    LogInfo("MFU = tokens/s * FLOPs per token / (devices * {:.4g} FLOP/s of {}; {})",
            run.peak_flops_per_s, peak->kind, peak->source);
}

void LogStart(const Run& run) {
  const RunConfig& config = run.config;
  const auto count = nn::olmo3::CountParameters(config.model, /*padded=*/true);
  LogInfo("{} parameters, {} layers, mesh {}", count.total, config.model.num_layers,
          MeshText(run.trainer->options().mesh));
  LogInfo("{} instances of {} tokens, order {}, {} per step; steps {} to {}",
          run.data.source->num_instances(), config.data.sequence_length,
          Name(run.data.order->config().kind), config.data.global_batch, run.state.step + 1,
          run.last_step);
  const pjrt::MemoryStats memory = run.trainer->step_executable().memory_stats();
  LogInfo(
      "memory per device: {} MiB arguments (state and batch), {} MiB temporaries; state {} bytes "
      "per parameter",
      memory.argument_bytes / kMiB, memory.temp_bytes / kMiB,
      StateBytes(*run.trainer) / count.total);
  LogRates(run);
}

}  // namespace

std::span<const std::string_view> FreeKeys() {
  // Where a run ends, what is watched and kept, and where its files and devices are.
  static constexpr std::string_view kKeys[] = {"train.steps",
                                               "train.tokens",
                                               "train.microbatches",
                                               "train.remat",
                                               "train.non_finite",
                                               "train.max_skipped_in_a_row",
                                               "eval",
                                               "checkpoint",
                                               "metrics",
                                               "mesh",
                                               "data.base_dir",
                                               "data.path_remaps",
                                               "data.cache_dir",
                                               "data.order_file",
                                               "data.loader_threads",
                                               "data.read_ahead",
                                               "data.accept_fingerprint"};
  return kKeys;
}

Status CheckSameRun(const Recipe& before, const Recipe& now, std::span<const std::string> accept) {
  std::vector<std::string> faults;
  for (const RecipeDifference& difference : Differences(before, now)) {
    const auto covers = [&](std::string_view key) {
      return difference.key == key || difference.key.starts_with(std::string(key) + ".") ||
             difference.key.starts_with(std::string(key) + "[");
    };
    if (std::ranges::any_of(FreeKeys(), covers) || std::ranges::any_of(accept, covers)) continue;
    faults.push_back(fmt::format("{} was {}, is {} ({})", difference.key, difference.before,
                                 difference.after, difference.origin.ToString()));
  }
  if (faults.empty()) return {};
  return InvalidArgumentError(
      "the run in this folder began with another recipe:\n  {}\nGive another --run-dir, or accept "
      "each change by name with --accept KEY",
      fmt::join(faults, "\n  "));
}

Status CheckAccepted(std::span<const std::string> accept) {
  for (const std::string& name : accept) {
    const std::string key = name.substr(0, name.find('['));  // of one table of an array
    if (RunSchema().Find(key) != nullptr || RunSchema().IsTable(key)) continue;
    const std::optional<std::string> nearest = NearestKey(key, RunSchema().names());
    return InvalidArgumentError(
        "--accept {}: there is no such key{}; `recipe.toml` in the run's folder lists them", name,
        nearest ? fmt::format(", did you mean `{}`?", *nearest) : "");
  }
  return {};
}

Status CheckRunDir(const Path& path) {
  Path parent = std::filesystem::absolute(path).lexically_normal();
  std::error_code ignored;
  while (!std::filesystem::exists(parent, ignored) && parent.has_relative_path())
    parent = parent.parent_path();
  if (!std::filesystem::is_directory(parent, ignored))
    return InvalidArgumentError("--run-dir {}: {} is no directory; name another", path, parent);
  if (access(parent.c_str(), W_OK | X_OK) == 0) return {};
  return InvalidArgumentError("--run-dir {}: {}", path,
                              ErrnoError(errno, parent, "write there").message());
}

Result<OpenedRun> OpenRun(Recipe recipe, const RunRequest& request,
                          Run::Clock::time_point process_start) {
  TRY(CheckAccepted(request.accept));
  TRY(CheckRunDir(request.run_dir));
  auto run = std::make_unique<Run>();
  run->request = request;
  run->config = TRY(ConfigFromRecipe(recipe));
  run->schedule = run->config.learning_rate();
  run->process_start = process_start;
  const Mesh mesh = TRY(MeshOf(run->config.mesh));
  if (const auto warning = MomentsWarning(run->config.optim)) LogWarning("{}", *warning);
  if (!run->config.train.tokenizer.empty())
    run->tokenizer_json = TRY(AsUsage(ReadFile(run->config.train.tokenizer)));

  // Only looked at until it is clear that there is something to do.
  const metrics::RunPaths paths{request.run_dir};
  const std::optional<Recipe> stored = TRY(StoredRecipe(paths));
  if (stored && !request.start_over) TRY(CheckSameRun(*stored, recipe, request.accept));
  run->recipe = std::move(recipe);
  auto data = data::OpenData(run->config.data);
  if (!data.ok()) return AsUsage(WithDataHint(run->recipe, data.error()));
  run->data = *std::move(data);
  run->last_step = TRY(LastStep(run->config, run->data.order->num_steps()));
  if (const auto complete = TRY(FindComplete(paths, request, run->last_step))) {
    if (complete->step > run->last_step)
      return InvalidArgumentError(
          "the run in {} is at step {} already, the recipe ends at step {}; raise train.steps, or "
          "take another --run-dir",
          request.run_dir.string(), complete->step, run->last_step);
    return OpenedRun{.run = nullptr, .step = complete->step, .checkpoint = complete->path};
  }

  run->directory = TRY(metrics::RunDirectory::Open(request.run_dir));
  TRY(SetLogFile(paths.log()));
  TRY(checkpoint::RemoveLeftovers(paths.checkpoints()));
  const Newest newest = TRY(FindCheckpoint(paths, request));
  const std::optional<OpenedStep>& opened = newest.opened;
  if (!opened && !request.start_over) TRY(CheckNothingLost(paths, newest));
  if (!newest.passed_over.empty())
    LogWarning("goes on from step {}: the checkpoint of step {} is damaged", opened->step,
               newest.passed_over.front().step);
  if (opened || request.start_over)
    TRY(SetAsideNewer(paths.checkpoints(), opened ? opened->step : -1));
  std::optional<TrainState> saved;
  if (opened) {
    saved = TRY(LoadTrainState(*opened, run->config.skip_options()));
    run->data = TRY(data::ResumeData(run->config.data, saved->loader, std::move(run->data)));
  }
  TRY(run->data.order->Prepare());
  run->heldout = TRY(AsUsage(HeldOutSets::Open(run->config.eval, run->config.data)));
  TRY(OpenClient(*run, mesh));
  TRY(OpenTrainer(*run, mesh));
  TRY(CheckRoom(*run));
  TRY(FillState(*run, opened, saved));
  run->first_step = run->state.step;
  TRY(OpenLoader(*run));
  SetRates(*run);
  LogStart(*run);
  TRY(OpenRecords(*run, newest));
  return OpenedRun{.run = std::move(run), .step = 0, .checkpoint = {}};
}

Status RecordEvent(Run& run, int64_t step, std::string_view name, std::string text) {
  return run.recorder->Write(metrics::EventRecord{.step = step,
                                                  .name = std::string(name),
                                                  .text = std::move(text),
                                                  .wall_time_s = metrics::WallTimeS()});
}

Status SaveRun(Run& run) {
  run.state.adam_count = TRY(run.trainer->AdamCount());
  TRY(run.recorder->Flush());  // every record up to a checkpoint outlives it
  const data::LoaderState loader =
      TRY(data::StateBefore(run.state.step, run.data, run.state.tokens, run.state.consumed));
  const Path path = checkpoint::StepPath(run.paths().checkpoints(), run.state.step);
  SaveOptions options{.side_files = {{"config.json", nn::olmo3::ConfigToHf(run.config.model)}},
                      .overwrite = true};
  if (!run.config.train.tokenizer.empty())
    options.side_files.emplace_back("tokenizer.json", run.tokenizer_json);
  TRY(CreateDirectories(run.paths().checkpoints()));
  TRY(SaveState(*run.trainer, run.state.step, PrintTrainState(run.state, loader, run.recipe.Hash()),
                path, options));
  run.last_saved = run.state.step;
  run.last_checkpoint = path;
  run.rollbacks_since_save = 0;
  // While steps are left out, the older ones may be the last good ones.
  if (run.state.skipped_in_a_row > 0) return {};
  const CheckpointTable& keep = run.config.checkpoint;
  TRY(checkpoint::PruneSteps(run.paths().checkpoints(),
                             {.last = keep.keep_last, .every = keep.keep_every}));
  return {};
}

Status RollBack(Run& run) {
  const Newest newest = TRY(checkpoint::OpenNewest(run.paths().checkpoints(), {.full = true}));
  const std::optional<OpenedStep>& opened = newest.opened;
  if (!opened || run.rollbacks_since_save >= kMaxRollbacks)
    return FailedPreconditionError(
        "step {}: train.non_finite = \"rollback\", but {}; lower the learning rate, or look at the "
        "data of these steps",
        run.state.step,
        opened ? fmt::format("going back {} times to step {} did not help", kMaxRollbacks,
                             opened->step)
               : "there is no checkpoint to go back to");
  const TrainState saved = TRY(LoadTrainState(*opened, run.config.skip_options()));
  TRY(RestoreState(*run.trainer, *opened->reader, RestoreParts::kAll, opened->path.string()));
  run.state.adam_count = saved.run.adam_count;
  run.state.history = saved.run.history;
  TRY(run.trainer->SetAdamCount(run.state.adam_count));
  ++run.rollbacks_since_save;
  TRY(RecordPassedOver(run, newest));
  const std::string text =
      fmt::format("weights and moments of step {} again; the data of steps {} to {} are left out",
                  opened->step, opened->step + 1, run.state.step);
  LogWarning("rolled back: {}", text);
  return RecordEvent(run, run.state.step, "rollback", text);
}

}  // namespace ulmus::train
