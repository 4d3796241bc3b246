// The keys of a run: every field with its help, limits and choices, once.
#include "nn/olmo3/flops.h"
#include "nn/olmo3/remat.h"
#include "train/run_config_tables.h"

namespace ulmus::train {
namespace {

// 2^15 along each of four axes: their product stays far from 2^63.
constexpr int64_t kMaxMeshAxis = int64_t{1} << 15;

// Patterns as OLMo 3's names have them; what matches nothing is an error of the whole recipe.
StructSchema<GroupTable> GroupSchema() {
  return StructSchema<GroupTable>()
      .Require("patterns", &GroupTable::patterns,
               {.help = "tensors by name; `*` is any text, `?` one character"})
      .Require("weight_decay", &GroupTable::weight_decay, {.help = "of these tensors", .min = 0})
      .Add("lr_factor", &GroupTable::lr_factor, {.help = "times the schedule's rate", .min = 0});
}

std::vector<std::string> ScheduleNames() {
  std::vector<std::string> names;
  for (const optim::ScheduleDef& def : optim::Schedules()) names.emplace_back(def.name);
  return names;
}

StructSchema<optim::SchedulePhase> PhaseSchema() {
  using P = optim::SchedulePhase;
  return StructSchema<P>()
      .Require("kind", &P::kind, {.help = "the curve", .choices = ScheduleNames()})
      .Require("lr", &P::lr, {.help = "the peak", .min = 0, .max = 1e6})
      .Add("warmup", &P::warmup, {.help = "length of the linear rise to the peak", .min = 0})
      .Add("t_max", &P::t_max, {.help = "position at which the curve ends", .min = 0})
      .Add("final_fraction", &P::final_fraction,
           {.help = "the end as a fraction of the peak (OLMo-core: alpha_f)", .min = 0, .max = 1})
      .Add("decay", &P::decay,
           {.help = "length of the linear decay at the end (wsd, cosine_linear)", .min = 0})
      .Add("warmup_min_lr", &P::warmup_min_lr, {.help = "where the rise begins", .min = 0})
      .Add("decay_min_lr", &P::decay_min_lr, {.help = "where the linear decay ends", .min = 0})
      .Add("exponent", &P::exponent, {.help = "power_law: of position / warmup"})
      .Add("until", &P::until,
           {.help = "last position of this phase; 0: to the end, in the last one only", .min = 0})
      .Add(
          "restart", &P::restart,
          {.help = "positions count from the end of the phase before, the peak is the rate there"});
}

StructSchema<EvalSetTable> EvalSetSchema() {
  return StructSchema<EvalSetTable>()
      .Require("name", &EvalSetTable::name, {.help = "in metrics: eval/<name>"})
      .Require("paths", &EvalSetTable::paths, {.help = "token files, relative to data.base_dir"});
}

StructSchema<TrainTable> MakeTrainSchema() {
  using T = TrainTable;
  StructSchema<T> s("train");
  s.Add("steps", &T::steps,
        {.help = "updates, skipped ones included; 0: as tokens or the data say", .min = 0});
  s.Add(
      "tokens", &T::tokens,
      {.help = "tokens read, rounded up to whole batches; 0: as steps or the data say", .min = 0});
  s.Add("microbatches", &T::microbatches,
        {.help = "parts of a global batch that run one after the other", .min = 1});
  s.Add("dtype", &T::dtype,
        {.help = "of activations, and of weights as multiplied; master weights are float32",
         .choices = {"bfloat16", "float32"}});
  s.Add("remat", &T::remat,
        {.help = "what of a layer is computed again instead of kept",
         .choices = nn::olmo3::RematNames()});
  s.Add("logits_in_float32", &T::logits_in_float32,
        {.help = "float32 operands of the head's product (MaxText logits_dot_in_fp32)"});
  s.Add("seed", &T::seed, {.help = "of the initial weights", .min = 0});
  s.Add("init", &T::init,
        {.help = "distribution of the initial weights", .choices = {"olmo_core", "maxtext"}});
  s.Add("start_from", &T::start_from,
        {.help = "weights to begin with: a checkpoint, a run directory or a Hugging Face folder"});
  s.Add("tokenizer", &T::tokenizer,
        {.help = "tokenizer.json that checkpoints carry along; \"\": none", .allow_empty = true});
  s.Add("start_with", &T::start_with,
        {.help = "taken from there: weights, or Adam's moments and count too",
         .choices = {"weights", "weights_and_moments"}});
  s.Add("non_finite", &T::non_finite,
        {.help = "what a NaN or infinity in loss or gradients does",
         .choices = {"skip", "stop", "rollback"}});
  s.Add("max_skipped_in_a_row", &T::max_skipped_in_a_row,
        {.help = "skipped updates after which the run stops with an error; 0: never", .min = 0});
  return s;
}

StructSchema<MeshTable> MakeMeshSchema() {
  const auto axis = [](const char* help) {
    return FieldOptions{.help = help, .min = 0, .max = static_cast<double>(kMaxMeshAxis)};
  };
  return StructSchema<MeshTable>("mesh")
      .Add("data", &MeshTable::data,
           axis("devices that hold copies of the weights; 0, on one axis: all that are left"))
      .Add("fsdp", &MeshTable::fsdp, axis("devices over which weights and batch are cut"))
      .Add("tensor", &MeshTable::tensor, axis("devices over which heads, MLP, vocabulary are cut"))
      .Add("context", &MeshTable::context, axis("devices over which the sequence is cut"));
}

StructSchema<OptimTable> MakeOptimSchema() {
  using O = OptimTable;
  StructSchema<O> s("optim");
  s.Add("rule", &O::rule,
        {.help = "adam_pax: MaxText's bias correction inside the decay rates",
         .choices = {"adamw", "adam_pax"}});
  s.Add("beta1", &O::beta1, {.help = "decay of the mean of gradients", .min = 0, .below = 1});
  s.Add("beta2", &O::beta2, {.help = "decay of the mean of squares", .min = 0, .below = 1});
  s.Add("eps", &O::eps, {.help = "outside the root, after bias correction", .min = 1e-37});
  s.Add("moments", &O::moments,
        {.help = "dtype of Adam's moments; bfloat16 cost a 7B run 0.93 of loss",
         .choices = {"float32", "bfloat16"}});
  s.Add("step_increment_bugfix", &O::step_increment_bugfix,
        {.help = "false: Adam's count stays 0, as in OLMo-core before the fix"});
  s.Add("weight_decay", &O::weight_decay,
        {.help = "of tensors in no group, times the learning rate", .min = 0});
  s.AddTables(
      "groups", &O::groups, GroupSchema(),
      {.help = "tensors that decay or learn otherwise; none: the embedding does not decay"});
  s.Add(
      "clip", &O::clip,
      {.help = "rule of clipping by the global norm", .choices = {"olmo_core", "maxtext", "off"}});
  s.Add("max_grad_norm", &O::max_grad_norm, {.help = "norm after clipping", .above = 0});
  s.Add("grad_norm_sum", &O::grad_norm_sum,
        {.help = "order in which squares are added up; torch_cpu rounds as PyTorch does on a CPU",
         .choices = {"any_order", "torch_cpu"}});
  s.Add("z_loss_weight", &O::z_loss_weight,
        {.help = "times the mean of logsumexp^2, added to the loss", .min = 0});
  s.Add("skip", &O::skip,
        {.help = "skips updates whose loss or norm jumps: which loss and norm are looked at",
         .choices = {"olmo_core", "maxtext", "off"}});
  s.Add("skip_interval", &O::skip_interval, {.help = "steps a jump is judged by", .min = 2});
  s.Add("skip_sigma", &O::skip_sigma, {.help = "standard deviations that are a jump", .above = 0});
  return s;
}

StructSchema<ScheduleTable> MakeScheduleSchema() {
  return StructSchema<ScheduleTable>("schedule")
      .Add("unit", &ScheduleTable::unit,
           {.help = "of all positions and lengths", .choices = {"steps", "tokens"}})
      .AddTables("phases", &ScheduleTable::phases, PhaseSchema(),
                 {.help = "curves, one after the other"}, /*required=*/true);
}

StructSchema<EvalTable> MakeEvalSchema() {
  return StructSchema<EvalTable>("eval")
      .Add("every", &EvalTable::every,
           {.help = "steps between held-out evaluations; 0: never", .min = 0})
      .Add("batch", &EvalTable::batch, {.help = "instances; 0: those of a microbatch", .min = 0})
      .Add("at_start", &EvalTable::at_start, {.help = "also before the first update"})
      .AddTables("sets", &EvalTable::sets, EvalSetSchema(),
                 {.help = "held-out token files, one padded instance per document"});
}

StructSchema<CheckpointTable> MakeCheckpointSchema() {
  return StructSchema<CheckpointTable>("checkpoint")
      .Add("every", &CheckpointTable::every,
           {.help = "steps between saves; 0: at the end only", .min = 0})
      .Add("keep_last", &CheckpointTable::keep_last,
           {.help = "newest checkpoints that are kept; 0: all", .min = 0})
      .Add("keep_every", &CheckpointTable::keep_every,
           {.help = "checkpoints at multiples of this many steps are kept for ever; 0: none",
            .min = 0})
      .Add("at_start", &CheckpointTable::at_start, {.help = "step 0 too"});
}

StructSchema<MetricsTable> MakeMetricsSchema() {
  std::vector<std::string> formulas;
  for (const nn::olmo3::FlopsFormula formula : nn::olmo3::kAllFlopsFormulas)
    formulas.emplace_back(nn::olmo3::Name(formula));
  return StructSchema<MetricsTable>("metrics")
      .Add("log_every", &MetricsTable::log_every, {.help = "steps between plain lines", .min = 1})
      .Add("tensorboard", &MetricsTable::tensorboard, {.help = "writes event files"})
      .Add("layer_norms", &MetricsTable::layer_norms, {.help = "gradient norm per tensor"})
      .Add("flops", &MetricsTable::flops,
           {.help = "formula of FLOP/s and MFU", .choices = std::move(formulas)})
      .Add("alarm_window", &MetricsTable::alarm_window,
           {.help = "steps over which the alarms take the mean of the training loss", .min = 1})
      .Add("alarm_min_fall", &MetricsTable::alarm_min_fall,
           {.help = "nats: a training loss that falls so far is an alarm if no held-out loss "
                    "follows; 0: not",
            .min = 0})
      .Add("alarm_min_follow", &MetricsTable::alarm_min_follow,
           {.help = "share of the fall by which a held-out loss must follow", .min = 0, .max = 1})
      .Add("alarm_gap", &MetricsTable::alarm_gap,
           {.help = "nats: warns if training loss is this far below every held-out loss; 0: not",
            .min = 0});
}

}  // namespace

const RunTables& Tables() {
  static const RunTables tables = {MakeTrainSchema(),    MakeMeshSchema(), MakeOptimSchema(),
                                   MakeScheduleSchema(), MakeEvalSchema(), MakeCheckpointSchema(),
                                   MakeMetricsSchema()};
  return tables;
}

const Schema& RunSchema() {
  static const Schema schema = [] {
    Schema s;
    nn::olmo3::AddConfigTo(s);
    data::DataSchema().AddTo(s);
    Tables().train.AddTo(s);
    Tables().mesh.AddTo(s);
    Tables().optim.AddTo(s);
    Tables().schedule.AddTo(s);
    Tables().eval.AddTo(s);
    Tables().checkpoint.AddTo(s);
    Tables().metrics.AddTo(s);
    return s;
  }();
  return schema;
}

}  // namespace ulmus::train
