#include "apps/check_report.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "data/config.h"
#include "infer/model.h"
#include "metrics/throughput.h"
#include "nn/olmo3/flops.h"
#include "nn/olmo3/parameters.h"
#include "nn/olmo3/sharding.h"
#include "optim/param_groups.h"
#include "optim/schedule.h"
#include "train/heldout.h"
#include "train/run.h"

namespace ulmus::apps {
namespace {

using nn::olmo3::Config;
using train::RunConfig;

// Elements per tensor that the table of initial weights is made from: enough for three digits.
constexpr int64_t kInitSample = int64_t{1} << 16;
constexpr const char* kUnnamed = "(not named yet)";

bool NamesData(const data::DataConfig& data) {
  return !data.paths.empty() || !data.mix_list.empty() || !data.index.empty() ||
         !data.sources.empty();
}

// The nearest one above that exists: where a run directory will be made.
Path ExistingParent(Path path) {
  path = std::filesystem::absolute(path).lexically_normal();
  std::error_code ignored;
  while (!std::filesystem::exists(path, ignored) && path.has_relative_path())
    path = path.parent_path();
  return path;
}

bool IsCpu(std::string_view kind) { return kind == "cpu" || kind == "CPU"; }

class Checker {
 public:
  explicit Checker(const CheckInput& input)
      : input_(input), is_preset_(train::IsPreset(input.recipe)) {}

  CheckReport Run() {
    if (!ReadConfig()) return std::move(report_);
    JudgeMesh();
    JudgeMemory();
    CountParameters();
    ListParameters();
    OpenData();
    OpenHeldOut();
    OpenStart();
    FindLastStep();
    ListRates();
    JudgeRunDir();
    FindDisk();
    AddWarnings();
    for (const nn::olmo3::FlopsFormula formula : nn::olmo3::kAllFlopsFormulas) {
      report_.flops_per_token.emplace_back(
          Name(formula), ComputeFlopsPerToken(model(), config().data.sequence_length, formula));
    }
    if (input_.init_table) report_.init = InitTable(model(), config().init(), kInitSample);
    return std::move(report_);
  }

 private:
  const RunConfig& config() const { return *report_.config; }
  const Config& model() const { return report_.config->model; }

  void AddError(const std::string& key, const std::string& message,
                StatusCode code = StatusCode::kInvalidArgument) {
    Origin origin;
    if (recipe_) {
      const auto entry = recipe_->entries().find(key);
      if (entry != recipe_->entries().end()) origin = entry->second.origin;
    }
    report_.errors.push_back({key, message, origin});
    report_.only_damage = report_.only_damage && code == StatusCode::kDataLoss;
  }
  void AddError(const std::string& key, const Status& status) {
    if (!status.ok()) AddError(key, status.message(), status.code());
  }

  bool ReadConfig() {
    Result<Recipe> recipe = train::ResolveRun(input_.recipe, input_.flags, &report_.errors);
    // A later stage by its preset's name alone: what it starts from is not part of it.
    if (recipe.ok() && is_preset_ && recipe->GetString("train.start_from").empty() &&
        recipe->GetString("train.start_with") != "weights") {
      std::vector<std::string> flags = input_.flags;
      flags.push_back(fmt::format("train.start_from={}", kUnnamed));
      recipe = train::ResolveRun(input_.recipe, flags, &report_.errors);
    }
    if (!recipe.ok()) {
      if (report_.errors.empty()) AddError("", recipe.status());
      report_.only_damage = false;
      return false;
    }
    recipe_ = *std::move(recipe);
    Result<RunConfig> config = train::ConfigFromRecipe(*recipe_, &report_.errors);
    if (!config.ok()) {
      report_.only_damage = false;
      return false;
    }
    report_.config = *std::move(config);
    return true;
  }

  void JudgeMesh() {
    const Result<Mesh> mesh = train::MeshOf(config().mesh, input_.devices);
    AddError("mesh", mesh.status());
    if (!mesh.ok()) return;
    const AxisRules rules = nn::olmo3::DefaultRules(model(), *mesh);
    const train::StepOptions options = config().step_options();
    const Status valid = ValidateStep(model(), options, *mesh, rules);
    AddError("mesh", valid);
    if (!valid.ok()) return;
    if (const int64_t batch = config().eval.batch; batch > 0 && !config().eval.sets.empty()) {
      AddError("eval.batch", ValidateMesh(model(), *mesh, rules, batch, options.sequence_length));
    }
    report_.mesh = *mesh;
    report_.memory = train::EstimateMemory(model(), options, *mesh);
  }

  // Devices of a CPU are threads of one machine and share its memory.
  std::optional<int64_t> DeviceBytes(const std::string& kind) const {
    if (IsCpu(kind)) {
      const Result<int64_t> machine = metrics::ReadMachineMemory();
      return machine.ok() ? std::optional(*machine / report_.mesh.num_devices()) : std::nullopt;
    }
    const metrics::DevicePeak* device = metrics::FindDevicePeak(kind);
    if (device == nullptr || device->memory_bytes == 0) return std::nullopt;
    return static_cast<int64_t>(device->memory_bytes);
  }

  void JudgeMemory() {
    if (!report_.memory) return;
    const bool named = !input_.device.empty();
    const std::string kind = named ? input_.device : "cpu";
    const std::optional<int64_t> bytes = DeviceBytes(kind);
    if (named) report_.fit = {.device = kind, .device_bytes = bytes, .fits = {}};
    if (!bytes) {
      std::string known = "cpu";
      for (const metrics::DevicePeak& device : metrics::DevicePeaks())
        if (device.memory_bytes > 0) known += fmt::format(", {}", device.kind);
      if (named)
        report_.warnings.push_back(fmt::format(
            "--device \"{}\": its memory is not known, so nobody can tell whether a step fits; "
            "known are {}",
            kind, known));
      return;
    }
    const train::MemoryEstimate& memory = *report_.memory;
    // What must be there whatever a compiler does; the estimate of the rest is that of a CPU.
    const int64_t least = memory.state() + memory.batch;
    const std::string message = fmt::format(
        "a step needs {} bytes on one device (estimate), {} of them for weights, moments and "
        "batch, but one of {} devices of kind {} has {}; cut over more devices (mesh.fsdp), take "
        "more train.microbatches or another train.remat",
        memory.total(), least, report_.mesh.num_devices(), kind, *bytes);
    if (!named) {
      // Nobody said that it will be this machine.
      if (memory.total() > *bytes)
        report_.warnings.push_back(message + "; --device names the kind it is for");
    } else if (memory.total() <= *bytes) {
      report_.fit.fits = true;
    } else if (least > *bytes || IsCpu(kind)) {
      report_.fit.fits = false;
      AddError("mesh.fsdp", message);
    } else {
      report_.warnings.push_back(
          "whether a step fits cannot be told, its compiler may need less: " + message);
    }
  }

  void CountParameters() {
    report_.params = nn::olmo3::CountParameters(model()).total;
    report_.padded_params = nn::olmo3::CountParameters(model(), /*padded=*/true).total;
    const int64_t moment = config().step_options().moments == DType::kBF16 ? 2 : 4;
    report_.state_bytes = report_.padded_params * (4 + 2 * moment);
  }

  void ListParameters() {
    const std::vector<nn::olmo3::HfTensor> tensors = HfTensors(model());
    std::vector<std::string> names;
    for (const auto& tensor : tensors) names.push_back(tensor.name);
    const train::StepOptions options = config().step_options();
    const auto rates = optim::AssignParamGroups(names, options.groups, options.weight_decay);
    CHECK(rates.ok(), "{}", rates.status().message());  // ConfigFromRecipe has judged them
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::string name = names[i];
      if (const size_t at = name.find(".layers."); at != std::string::npos) {
        const size_t begin = at + 8;
        name.replace(begin, name.find('.', begin) - begin, "*");
      }
      const optim::ParamRates& rate = (*rates)[i];
      const auto row = std::ranges::find_if(report_.parameters, [&](const ParameterRow& r) {
        return r.name == name && r.weight_decay == rate.weight_decay &&
               r.lr_factor == rate.lr_factor;
      });
      if (row != report_.parameters.end()) {
        ++row->tensors;
      } else {
        report_.parameters.push_back(
            {name, tensors[i].shape, 1, rate.weight_decay, rate.lr_factor});
      }
    }
  }

  void OpenData() {
    if (!NamesData(config().data) && is_preset_) {
      report_.warnings.emplace_back(
          "this preset names no token files: give data.paths, data.mix_list, data.index or "
          "[[data.sources]] before training");
      return;
    }
    const Result<data::Data> data = data::OpenData(config().data);
    AddError(DataKey(), train::WithDataHint(*recipe_, data.status()));
    if (!data.ok()) return;
    DataFacts facts = {.instances = data->source->num_instances(),
                       .files = static_cast<int64_t>(data->files.size()),
                       .left_over = data->order->dropped_per_epoch(),
                       .steps = data->order->num_steps(),
                       .order = std::string(Name(data->order->config().kind)),
                       .fingerprint = data->source->fingerprint()};
    for (const data::FileIdentity& file : data->files) facts.size_bytes += file.size_bytes;
    report_.data = std::move(facts);
  }

  std::string DataKey() const {
    const data::DataConfig& data = config().data;
    if (!data.paths.empty()) return "data.paths";
    if (!data.mix_list.empty()) return "data.mix_list";
    if (!data.index.empty()) return "data.index";
    return data.sources.empty() ? "data.paths" : "data.sources";
  }

  void OpenHeldOut() {
    for (size_t i = 0; i < config().eval.sets.size(); ++i) {
      const train::EvalSetTable& set = config().eval.sets[i];
      const auto source = data::OpenSource(train::DataOfSet(set, config().data));
      AddError(fmt::format("eval.sets[{}].paths", i),
               source.status().WithContext(fmt::format("held-out set \"{}\"", set.name)));
      if (source.ok() && (*source)->num_instances() == 0)
        AddError(fmt::format("eval.sets[{}].paths", i),
                 fmt::format("held-out set \"{}\" holds no document", set.name));
    }
  }

  void OpenStart() {
    const train::TrainTable& train = config().train;
    if (train.start_from.empty()) return;
    if (train.start_from == kUnnamed) {
      report_.warnings.emplace_back(
          "this preset goes on from the stage before: give train.start_from before training");
      return;
    }
    const auto start = infer::OpenCheckpoint(Path(train.start_from));
    AddError("train.start_from", start.status());
    if (!start.ok()) return;
    CompareSizes(start->config);
    if (train.start_with == "weights") return;
    const bool moments = FindTensor(*start->source, "exp_avg.model.norm.weight").has_value();
    if (!moments) {
      AddError("train.start_from",
               fmt::format("{}: holds weights without moments, but train.start_with = \"{}\"; name "
                           "a checkpoint of a run, or start with \"weights\"",
                           train.start_from, train.start_with));
    }
  }

  void CompareSizes(const Config& found) {
    struct Size {
      const char* name;
      int64_t wanted, found;
    };
    const Config& m = model();
    for (const auto& [name, wanted, have] :
         {Size{"vocab_size", m.vocab_size, found.vocab_size},
          Size{"hidden_size", m.hidden_size, found.hidden_size},
          Size{"intermediate_size", m.intermediate_size, found.intermediate_size},
          Size{"num_layers", m.num_layers, found.num_layers},
          Size{"num_heads", m.num_heads, found.num_heads},
          Size{"num_kv_heads", m.num_kv_heads, found.num_kv_heads},
          Size{"head_dim", m.head_dim, found.head_dim}}) {
      if (wanted == have) continue;
      AddError("train.start_from",
               fmt::format("{}: has {} = {}, but model.{} = {}", config().train.start_from, name,
                           have, name, wanted));
    }
  }

  void FindLastStep() {
    // Where the data could not be opened, only what the recipe itself says can be told.
    const bool asked = config().train.steps > 0 || config().train.tokens > 0;
    if (!report_.data && !asked) return;
    const Result<int64_t> last =
        LastStep(config(), report_.data ? report_.data->steps : std::nullopt);
    AddError(config().train.tokens > 0 ? "train.tokens" : "train.steps", last.status());
    if (last.ok()) report_.last_step = *last;
  }

  void ListRates() {
    const optim::Schedule schedule = config().learning_rate();
    const int64_t per_step = config().tokens_per_step();
    const int64_t unit = schedule.unit == optim::ScheduleUnit::kTokens ? per_step : 1;
    const auto add = [&](std::string what, int64_t step) {
      if (step < 1 || (report_.last_step && step > *report_.last_step)) return;
      if (step > INT64_MAX / per_step) return;
      report_.rates.push_back(
          {std::move(what), step, optim::LearningRate(schedule, step, step * per_step)});
    };
    add("first update", 1);
    int64_t before = 0;
    for (size_t i = 0; i < schedule.phases.size(); ++i) {
      const optim::SchedulePhase& phase = schedule.phases[i];
      const int64_t origin = phase.restart ? before : 0;
      const auto place = [&](int64_t position) { return (origin + position) / unit; };
      // A warm-up that lies in an earlier phase only tells where this one's curve begins.
      if (phase.warmup > 0 && origin + phase.warmup > before)
        add(fmt::format("end of warm-up, {}", phase.kind), place(phase.warmup));
      if (phase.until > 0 && i + 1 < schedule.phases.size()) {
        add(fmt::format("last of {}", phase.kind), phase.until / unit);
        add(fmt::format("first of {}", schedule.phases[i + 1].kind), phase.until / unit + 1);
        before = phase.until;
      } else if (phase.t_max > 0 && place(phase.t_max) != report_.last_step.value_or(0)) {
        add(fmt::format("end of {}", phase.kind), place(phase.t_max));
      }
    }
    if (report_.last_step) add("last update", *report_.last_step);
  }

  // Checkpoints on the disk at one time, the one being written included.
  int64_t MostCheckpoints() const {
    const train::CheckpointTable& table = config().checkpoint;
    const int64_t last = report_.last_step.value_or(0);
    const int64_t written =
        (table.every > 0 ? (last + table.every - 1) / table.every : 1) + (table.at_start ? 1 : 0);
    if (table.keep_last == 0) return std::max<int64_t>(1, written);
    const int64_t for_ever = table.keep_every > 0 ? last / table.keep_every : 0;
    return std::max<int64_t>(1, std::min(written, table.keep_last + 1 + for_ever));
  }

  void JudgeRunDir() {
    if (!input_.run_dir.empty()) AddError("--run-dir", train::CheckRunDir(input_.run_dir));
  }

  void FindDisk() {
    const Path folder = ExistingParent(input_.run_dir.empty() ? "." : input_.run_dir);
    const Result<int64_t> free_bytes = FreeDiskBytes(folder);
    if (!free_bytes.ok()) {
      if (!input_.run_dir.empty()) AddError("checkpoint.keep_last", free_bytes.status());
      return;
    }
    DiskFacts disk = {.folder = folder.string(),
                      .checkpoints = MostCheckpoints(),
                      .checkpoint_bytes = report_.state_bytes,
                      .free_bytes = *free_bytes};
    if (__builtin_mul_overflow(disk.checkpoints, disk.checkpoint_bytes, &disk.needed_bytes))
      disk.needed_bytes = INT64_MAX;
    report_.disk = disk;
    if (disk.needed_bytes <= disk.free_bytes) return;
    const std::string message = fmt::format(
        "{}: {} checkpoints * {} bytes = {} bytes, but {} are free; keep fewer "
        "(checkpoint.keep_last, keep_every) or name another --run-dir",
        disk.folder, disk.checkpoints, disk.checkpoint_bytes, disk.needed_bytes, disk.free_bytes);
    // Without --run-dir nobody said that it will be this disk.
    if (input_.run_dir.empty())
      report_.warnings.push_back(message);
    else
      AddError("checkpoint.keep_last", message);
  }

  void AddWarnings() {
    const RunConfig& c = config();
    const auto warn = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
      report_.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
    };
    if (const auto warning = train::MomentsWarning(c.optim)) report_.warnings.push_back(*warning);
    if (!c.optim.step_increment_bugfix)
      warn(
          "optim.step_increment_bugfix = false: Adam's count stays 0, which raises the effective "
          "rate {:.4g} times",
          std::sqrt(1 - c.optim.beta2) / (1 - c.optim.beta1));
    if (c.eval.every > 0 && c.eval.sets.empty())
      warn(
          "eval.every = {} without [[eval.sets]]: nothing is held out, so a run that learns its "
          "data by heart looks fine",
          c.eval.every);
    if (c.data.sequence_length > c.model.max_position_embeddings)
      warn(
          "data.sequence_length = {} > model.max_position_embeddings = {}: exports will state a "
          "shorter context than was trained",
          c.data.sequence_length, c.model.max_position_embeddings);
    if (c.checkpoint.every == 0)
      warn(
          "checkpoint.every = 0: saves at the end and on SIGTERM or SIGINT only; a run that is "
          "killed or crashes begins anew");
    AddScheduleWarnings();
  }

  void AddScheduleWarnings() {
    if (!report_.last_step) return;
    const optim::Schedule schedule = config().learning_rate();
    const optim::SchedulePhase& last = schedule.phases.back();
    const int64_t end = schedule.unit == optim::ScheduleUnit::kTokens
                            ? *report_.last_step * config().tokens_per_step()
                            : *report_.last_step;
    if (last.t_max > 0 && last.t_max != end && !last.restart) {
      report_.warnings.push_back(fmt::format("the run ends at {} {}, the {} curve at {}: {}", end,
                                             config().schedule.unit, last.kind, last.t_max,
                                             end < last.t_max
                                                 ? "it stops before its lowest rate"
                                                 : "what follows is trained at its end value"));
    }
    if (!report_.rates.empty() && report_.rates.front().lr == 0)
      report_.warnings.emplace_back(
          "the first update has rate 0 (MaxText's schedule counts from 0)");
  }

  const CheckInput& input_;
  const bool is_preset_;
  std::optional<Recipe> recipe_;
  CheckReport report_;
};

}  // namespace

CheckReport CheckRun(const CheckInput& input) { return Checker(input).Run(); }

}  // namespace ulmus::apps
