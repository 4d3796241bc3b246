#include "train/run_config.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/edit_distance.h"
#include "nn/olmo3/sharding.h"
#include "train/run_config_tables.h"

namespace ulmus::train {
namespace {

// Products of a batch and a sequence stay exact in a double and far from 2^63.
constexpr int64_t kMaxTokensPerStep = int64_t{1} << 53;

std::vector<std::pair<std::string_view, int64_t>> AxesOf(const MeshTable& table) {
  return {{"data", table.data},
          {"fsdp", table.fsdp},
          {"tensor", table.tensor},
          {"context", table.context}};
}

std::string Equation(const MeshTable& table) {
  std::string text;
  for (const auto& [name, size] : AxesOf(table))
    if (size > 1) text += fmt::format("{}{}={}", text.empty() ? "" : " * ", name, size);
  return text.empty() ? "1" : text;
}

// What one table alone cannot tell, each under the key to change.
class Judge {
 public:
  Judge(const Recipe& recipe, const RunConfig& config) : recipe_(recipe), config_(config) {}

  std::vector<RecipeError> Run() {
    JudgeData();
    JudgeTrain();
    JudgeOptim();
    JudgeEval();
    Add("mesh", MeshOf(config_.mesh).status());
    Add("schedule.phases", optim::ValidateSchedule(config_.learning_rate()));
    // Groups, microbatches and sizes over the mesh, once what they stand upon is known to be fine.
    if (errors_.empty()) JudgeStep();
    return std::move(errors_);
  }

 private:
  void Add(const std::string& key, const Status& status) {
    if (status.ok()) return;
    const auto entry = recipe_.entries().find(key);
    errors_.push_back({key, status.message(),
                       entry == recipe_.entries().end() ? Origin() : entry->second.origin});
  }

  void JudgeData() {
    const data::DataConfig& data = config_.data;
    int64_t tokens = 0;
    if (__builtin_mul_overflow(data.global_batch, data.sequence_length, &tokens) ||
        tokens > kMaxTokensPerStep) {
      Add("data.global_batch",
          InvalidArgumentError("data.global_batch * data.sequence_length = {} * {}: more than 2^53 "
                               "tokens a step",
                               data.global_batch, data.sequence_length));
    }
    if (data.vocab_size > config_.model.vocab_size) {
      Add("data.vocab_size",
          InvalidArgumentError("data.vocab_size = {} > model.vocab_size = {}: the model has no row "
                               "for some ids; give both the tokenizer's size",
                               data.vocab_size, config_.model.vocab_size));
    }
  }

  void JudgeTrain() {
    const TrainTable& train = config_.train;
    if (train.steps > 0 && train.tokens > 0) {
      Add("train.steps", InvalidArgumentError("train.steps = {} and train.tokens = {}: the run has "
                                              "one length; set one of them to 0",
                                              train.steps, train.tokens));
    }
    if (train.start_with == "weights_and_moments" && train.start_from.empty()) {
      Add("train.start_with",
          InvalidArgumentError("train.start_with = \"weights_and_moments\" without "
                               "train.start_from; name the checkpoint to take them from"));
    }
  }

  void JudgeOptim() {
    if (config_.skips()) Add("optim.skip", optim::ValidateSkipOptions(config_.skip_options()));
    for (size_t i = 0; i < config_.optim.groups.size(); ++i) {
      if (config_.optim.groups[i].patterns.empty())
        Add(fmt::format("optim.groups[{}].patterns", i),
            InvalidArgumentError("optim.groups[{}] has no pattern; name tensors or remove it", i));
    }
  }

  void JudgeEval() {
    std::set<std::string_view> names;
    for (size_t i = 0; i < config_.eval.sets.size(); ++i) {
      const EvalSetTable& set = config_.eval.sets[i];
      if (!names.insert(set.name).second) {
        Add(fmt::format("eval.sets[{}].name", i),
            InvalidArgumentError("two [[eval.sets]] are called \"{}\"; their losses would mix",
                                 set.name));
      }
      if (set.paths.empty()) {
        Add(fmt::format("eval.sets[{}].paths", i),
            InvalidArgumentError("[[eval.sets]] \"{}\" names no file", set.name));
      }
    }
  }

  void JudgeStep() {
    const StepOptions options = config_.step_options();
    const nn::olmo3::Config& model = config_.model;
    // On one device first: a fault of the sizes is not one of the mesh.
    const Mesh one, mesh = *MeshOf(config_.mesh);
    const bool microbatches = config_.data.global_batch % config_.train.microbatches == 0;
    Add(microbatches ? "optim.groups" : "train.microbatches",
        ValidateStep(model, options, one, nn::olmo3::DefaultRules(model, one)));
    if (!errors_.empty() || mesh.num_devices() == 1) return;
    Add("mesh", ValidateStep(model, options, mesh, nn::olmo3::DefaultRules(model, mesh)));
  }

  const Recipe& recipe_;
  const RunConfig& config_;
  std::vector<RecipeError> errors_;
};

Status AsStatus(const std::vector<RecipeError>& errors) {
  if (errors.empty()) return {};
  std::string message = errors.size() == 1
                            ? "the recipe has an error:"
                            : fmt::format("the recipe has {} errors:", errors.size());
  for (const RecipeError& error : errors) {
    message += fmt::format(
        "\n  {}: {}",
        error.origin.kind == Origin::Kind::kDefault ? error.key : error.origin.ToString(),
        error.message);
  }
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

}  // namespace

StepOptions RunConfig::step_options() const {
  StepOptions options;
  options.forward = {.dtype = train.dtype == "float32" ? DType::kF32 : DType::kBF16,
                     .remat = train.remat,
                     .logits_in_f32 = train.logits_in_float32};
  options.global_batch = data.global_batch;
  options.sequence_length = data.sequence_length;
  options.num_microbatches = train.microbatches;
  options.documents = data.document_mask;
  options.z_loss_weight = optim.z_loss_weight;
  options.adamw = {
      .rule = optim.rule == "adam_pax" ? optim::AdamRule::kAdamPax : optim::AdamRule::kAdamW,
      .beta1 = optim.beta1,
      .beta2 = optim.beta2,
      .eps = optim.eps};
  options.moments = optim.moments == "bfloat16" ? DType::kBF16 : DType::kF32;
  options.increment_count = optim.step_increment_bugfix;
  options.weight_decay = optim.weight_decay;
  if (!optim.groups.empty()) options.groups.clear();
  for (const GroupTable& group : optim.groups) {
    options.groups.push_back({.patterns = group.patterns,
                              .weight_decay = group.weight_decay,
                              .lr_factor = group.lr_factor});
  }
  options.clip = optim.clip == "off"       ? optim::ClipRule::kOff
                 : optim.clip == "maxtext" ? optim::ClipRule::kMaxText
                                           : optim::ClipRule::kOlmoCore;
  options.max_grad_norm = optim.max_grad_norm;
  options.grad_norm_sum =
      optim.grad_norm_sum == "torch_cpu" ? GradNormSum::kTorchCpu : GradNormSum::kAnyOrder;
  options.skip_metrics = optim.skip == "maxtext" ? SkipMetrics::kTotalLossAndClippedNorm
                                                 : SkipMetrics::kCrossEntropyAndRawNorm;
  return options;
}

optim::Schedule RunConfig::learning_rate() const {
  return {.unit = schedule.unit == "tokens" ? optim::ScheduleUnit::kTokens
                                            : optim::ScheduleUnit::kSteps,
          .phases = schedule.phases};
}

optim::SkipOptions RunConfig::skip_options() const {
  return {.interval = optim.skip_interval, .sigma = optim.skip_sigma};
}

metrics::HeldoutAlarmOptions RunConfig::alarm_options() const {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  return {.window_steps = metrics.alarm_window,
          .min_train_fall = metrics.alarm_min_fall > 0 ? metrics.alarm_min_fall : kNever,
          .min_follow = metrics.alarm_min_follow,
          .max_gap = metrics.alarm_gap > 0 ? metrics.alarm_gap : kNever};
}

nn::olmo3::InitOptions RunConfig::init() const {
  return {.style = train.init == "maxtext" ? nn::olmo3::InitStyle::kMaxText
                                           : nn::olmo3::InitStyle::kOlmoCore,
          .seed = static_cast<uint64_t>(train.seed)};
}

Result<Recipe> ResolveRun(std::string_view file_or_preset, std::vector<std::string> flags,
                          std::vector<RecipeError>* errors) {
  RecipeInput input{.file = {}, .flags = std::move(flags), .presets = Presets()};
  if (IsPreset(file_or_preset)) {
    input.file = {"preset", fmt::format("preset = \"{}\"\n", file_or_preset)};
  } else {
    Result<RecipeSource> file = ReadRecipeFile(Path(file_or_preset));
    if (!file.ok()) {
      const Status status = NoSuchRecipe(file_or_preset, file.status());
      if (errors != nullptr) *errors = {{.key = "", .message = status.message(), .origin = {}}};
      return status;
    }
    input.file = *std::move(file);
  }
  return Recipe::Resolve(RunSchema(), input, errors);
}

Status WithDataHint(const Recipe& recipe, const Status& status) {
  const auto paths = recipe.entries().find("data.paths");
  if (status.code() != StatusCode::kNotFound || paths == recipe.entries().end()) return status;
  const Origin& origin = paths->second.origin;
  if (origin.kind != Origin::Kind::kPreset || origin.name != "demo") return status;
  return Status(status.code(), status.message() +
                                   "; run `make demo`, which makes the files of this preset and "
                                   "trains it");
}

Result<RunConfig> ConfigFromRecipe(const Recipe& recipe, std::vector<RecipeError>* errors) {
  RunConfig config;
  std::vector<RecipeError> found;
  Result<nn::olmo3::Config> model = nn::olmo3::ConfigFromRecipe(recipe);
  if (model.ok()) {
    config.model = *std::move(model);
  } else {
    found.push_back({.key = "model", .message = model.error().message(), .origin = {}});
  }
  config.data = data::DataSchema().Read(recipe);
  config.train = Tables().train.Read(recipe);
  config.mesh = Tables().mesh.Read(recipe);
  config.optim = Tables().optim.Read(recipe);
  config.schedule = Tables().schedule.Read(recipe);
  config.eval = Tables().eval.Read(recipe);
  config.checkpoint = Tables().checkpoint.Read(recipe);
  config.metrics = Tables().metrics.Read(recipe);
  if (found.empty()) found = Judge(recipe, config).Run();
  if (errors != nullptr) *errors = found;
  TRY(AsStatus(found));
  return config;
}

std::optional<std::string> MomentsWarning(const OptimTable& table) {
  if (table.moments != "bfloat16") return std::nullopt;
  return "optim.moments = \"bfloat16\": a 7B run ended 0.93 higher in loss with bfloat16 moments "
         "than "
         "with float32, because changes below 2^-9 of a value are dropped; float32 costs 4 bytes "
         "more "
         "per parameter";
}

Result<Mesh> MeshOf(const MeshTable& table, int64_t num_devices) {
  std::vector<MeshAxis> axes;
  int64_t product = 1;
  std::vector<std::string_view> open;
  for (const auto& [name, size] : AxesOf(table)) {
    if (size < 0) return InvalidArgumentError("mesh.{} = {}; expected 0 or more", name, size);
    if (size == 0) open.push_back(name);
    if (__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product))
      return InvalidArgumentError("mesh: {} is more devices than can be counted", Equation(table));
  }
  if (open.size() > 1)
    return InvalidArgumentError("mesh.{} = 0 and mesh.{} = 0: only one axis can take what is left",
                                open[0], open[1]);
  int64_t left = 1;
  if (num_devices > 0) {
    if (num_devices % product != 0 || (open.empty() && num_devices != product)) {
      return InvalidArgumentError(
          "mesh: {} devices % ({}) = {}{}", num_devices, Equation(table), num_devices % product,
          num_devices % product != 0
              ? "; change an axis so that it is 0"
              : fmt::format(", but only {} of them would be used; set one axis to 0 to take all",
                            product));
    }
    left = num_devices / product;
  }
  // Axes of one device cut nothing: without them one device needs no partitioner.
  for (const auto& [name, size] : AxesOf(table)) {
    const int64_t devices = size == 0 ? left : size;
    if (devices > 1) axes.push_back({std::string(name), devices});
  }
  return Mesh(std::move(axes));
}

std::string MeshText(const Mesh& mesh) { return mesh.axes().empty() ? "data=1" : mesh.ToString(); }

Result<int64_t> LastStep(const RunConfig& config, std::optional<int64_t> data_steps) {
  const int64_t per_step = config.tokens_per_step();
  const TrainTable& train = config.train;
  const int64_t asked =
      train.steps > 0 ? train.steps : train.tokens / per_step + (train.tokens % per_step > 0);
  if (asked == 0 && !data_steps)
    return InvalidArgumentError(
        "train.steps = 0 and train.tokens = 0 with data.end = \"{}\": the run would never end; "
        "give one of them",
        config.data.end);
  if (asked == 0) return *data_steps;
  if (data_steps && asked > *data_steps) {
    return InvalidArgumentError(
        "the run has {} steps ({}), but the data ends after {} of {} instances each; give more "
        "data, fewer steps, or data.end = \"wrap\" for further epochs",
        asked,
        train.steps > 0 ? fmt::format("train.steps = {}", train.steps)
                        : fmt::format("train.tokens = {} / {} tokens a step, rounded up",
                                      train.tokens, per_step),
        *data_steps, config.data.global_batch);
  }
  return asked;
}

}  // namespace ulmus::train
