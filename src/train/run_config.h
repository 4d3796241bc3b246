// What a recipe says about a run: the tables [model] and [data] of their modules, and the run's
// own. The only reader of recipes for `check`, `train` and everything that takes a run up again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe_struct.h"
#include "base/status.h"
#include "data/config.h"
#include "metrics/heldout_alarm.h"
#include "nn/olmo3/config.h"
#include "nn/olmo3/init.h"
#include "optim/schedule.h"
#include "optim/skip_step.h"
#include "tensor/mesh.h"
#include "train/step_program.h"

namespace ulmus::train {

// [train]
struct TrainTable {
  int64_t steps = 0;  // updates, skipped ones included; 0: as tokens or the data say
  int64_t tokens =
      0;  // rounded up to whole batches, as OLMo-core does; 0: as steps or the data say
  int64_t microbatches = 1;
  std::string dtype = "bfloat16";  // of activations and of weights as multiplied
  std::string remat = "none";      // nn/olmo3/remat.h
  bool logits_in_float32 = false;  // MaxText logits_dot_in_fp32
  int64_t seed = 0;                // of the initial weights
  std::string init = "olmo_core";  // or "maxtext"
  // Weights to begin with instead: a checkpoint of ours, a run directory or a Hugging Face folder.
  std::string start_from;
  // "weights", or "weights_and_moments": a change of stage, in which Adam's step count goes on and
  // all other counters start afresh. The second needs a checkpoint of ours.
  std::string start_with = "weights";
  std::string tokenizer;               // tokenizer.json that checkpoints carry along; "": none
  std::string non_finite = "skip";     // "skip", "stop", "rollback": what a NaN or infinity does
  int64_t max_skipped_in_a_row = 100;  // then the run stops with an error; 0: never
};

// [mesh]: devices along each axis. 0: as many as the others leave, for one axis at most.
struct MeshTable {
  int64_t data = 1, fsdp = 1, tensor = 1, context = 1;
};

// [[optim.groups]]
struct GroupTable {
  std::vector<std::string> patterns;
  double weight_decay = 0, lr_factor = 1;
};

// [optim]
struct OptimTable {
  std::string rule = "adamw";  // or "adam_pax"
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  std::string moments = "float32";  // or "bfloat16", which cost a 7B run 0.93 of loss
  bool step_increment_bugfix = true;
  double weight_decay = 0.1;
  // Replaces the default, OLMo 3's: the input embedding does not decay.
  std::vector<GroupTable> groups;
  std::string clip = "olmo_core";  // "maxtext", "off"
  double max_grad_norm = 1;
  std::string grad_norm_sum = "any_order";  // "torch_cpu"
  double z_loss_weight = 1e-5;
  std::string skip = "olmo_core";  // "maxtext", "off"
  int64_t skip_interval = 128;
  double skip_sigma = 6;
};

// [[schedule.phases]]: optim::SchedulePhase under its own names.
// [schedule]
struct ScheduleTable {
  std::string unit = "steps";  // or "tokens"
  std::vector<optim::SchedulePhase> phases;
};

// [[eval.sets]]: held-out token files, one padded instance per document, cut at the sequence
// length.
struct EvalSetTable {
  std::string name;
  std::vector<std::string> paths;
};

// [eval]
struct EvalTable {
  int64_t every =
      0;  // steps between evaluations; 0: never. Also before the first step and at the end
  int64_t batch = 0;  // instances; 0: those of a microbatch
  bool at_start = true;
  std::vector<EvalSetTable> sets;
};

// [checkpoint]
struct CheckpointTable {
  int64_t every = 1000;    // steps; 0: at the end only
  int64_t keep_last = 3;   // newest ones kept; 0: all
  int64_t keep_every = 0;  // steps; multiples are kept for ever
  bool at_start = false;   // step 0 too
};

// [metrics]
struct MetricsTable {
  int64_t log_every = 10;  // steps between plain lines; every step goes to metrics.jsonl
  bool tensorboard = true;
  bool layer_norms = false;     // gradient norm per tensor
  std::string flops = "exact";  // formula of FLOP/s and MFU; all three are printed at the start
  // metrics/heldout_alarm.h, whose test holds the defaults against curves of the reference run: in
  // runs that learn, the training loss stays above the nearest held-out set's; those that read 160
  // instances again and again come 1.8 and 2.1 below it.
  int64_t alarm_window = 20;      // steps that a training loss is the mean of
  double alarm_min_fall = 0.25;   // nats; what double sharding cost OLMo 3 7B (case study)
  double alarm_min_follow = 0.1;  // share of that fall that held-out loss must follow by; ours
  double alarm_gap = 1;           // nats below held-out loss; 0: no such alarm
};

// A recipe with every table read and turned into what the modules take.
struct RunConfig {
  nn::olmo3::Config model;
  data::DataConfig data;
  TrainTable train;
  MeshTable mesh;
  OptimTable optim;
  ScheduleTable schedule;
  EvalTable eval;
  CheckpointTable checkpoint;
  MetricsTable metrics;

  // The parts as their modules want them. Valid after ConfigFromRecipe.
  StepOptions step_options() const;
  optim::Schedule learning_rate() const;
  optim::SkipOptions skip_options() const;
  metrics::HeldoutAlarmOptions alarm_options() const;
  bool skips() const { return optim.skip != "off"; }
  nn::olmo3::InitOptions init() const;
  int64_t tokens_per_step() const { return data.global_batch * data.sequence_length; }
};

// All keys of a run.
const Schema& RunSchema();

// Recipes in the program: `preset = "olmo3_7b_stage1"`. presets/<name>.toml each, with the source
// of every number beside it.
std::span<const RecipeSource> Presets();
bool IsPreset(std::string_view name);

// What the command line names: a file, or a preset's name.
Result<Recipe> ResolveRun(std::string_view file_or_preset, std::vector<std::string> flags,
                          std::vector<RecipeError>* errors = nullptr);

// `status` of opening the data, with what makes the files if a preset names ones that are not
// there.
Status WithDataHint(const Recipe& recipe, const Status& status);

// kInvalidArgument lists what one table alone cannot tell: schedule, groups, skip options,
// microbatches, vocabulary of data and model, sizes that do not divide over the mesh; `errors`, if
// given, receives it one by one. Touches neither files nor devices; a mesh axis of 0 counts as 1.
Result<RunConfig> ConfigFromRecipe(const Recipe& recipe,
                                   std::vector<RecipeError>* errors = nullptr);

// What to say of bfloat16 moments; nullopt with float32.
std::optional<std::string> MomentsWarning(const OptimTable& table);

// The mesh on so many devices (0: the product of the axes given); axes of one device are left out.
// kInvalidArgument with the equation: "6 devices % (tensor=4) = 2".
Result<Mesh> MeshOf(const MeshTable& table, int64_t num_devices = 0);

// "data=1" for one device.
std::string MeshText(const Mesh& mesh);

// Last step of the run: [train] steps, or tokens in whole batches, or where the data ends (none:
// data that wraps needs one of the two). kInvalidArgument if the data ends before.
Result<int64_t> LastStep(const RunConfig& config, std::optional<int64_t> data_steps);

}  // namespace ulmus::train
