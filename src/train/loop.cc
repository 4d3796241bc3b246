#include "train/loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "base/stop_signal.h"
#include "metrics/throughput.h"
#include "optim/schedule.h"

namespace ulmus::train {
namespace {

constexpr int64_t kMaxListedIds = 64;

double SecondsBetween(Run::Clock::time_point from, Run::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// MaxText's schedule stands still where a step is left out; OLMo-core's does not.
double LearningRateOf(const Run& run) {
  const bool frozen = run.config.optim.skip == "maxtext";
  const int64_t step = frozen ? run.state.applied() + 1 : run.state.step + 1;
  return optim::LearningRate(run.schedule, step, run.state.tokens + run.config.tokens_per_step());
}

optim::SkipLimits LimitsOf(const Run& run) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return run.config.skips() ? run.state.history.Limits() : optim::SkipLimits{kNone, kNone};
}

// Limits and policies need the step before to be known.
bool InLockstep(const Run& run) {
  return run.config.skips() || run.config.train.non_finite != "skip";
}

Result<const data::Batch*> NextBatch(Run& run) {
  const data::Batch* batch = TRY(run.loader->Next());
  if (batch == nullptr)
    return InternalError("the data ended at step {}, before the run's last step {}", run.state.step,
                         run.last_step);
  return batch;
}

// Starts the step of the uploaded batch and moves the counters on.
Status StartStep(Run& run, const data::Batch& batch) {
  RunState& state = run.state;
  const double lr = LearningRateOf(run);
  TRY(run.trainer->Start(lr, LimitsOf(run)));
  ++state.step;
  state.tokens += run.config.tokens_per_step();
  state.consumed.Add(batch.global_ids);
  run.started.push_back({.step = state.step,
                         .tokens = state.tokens,
                         .lr = lr,
                         .id_hash = fmt::format("{:016x}", state.consumed.value()),
                         .instance_ids = batch.global_ids,
                         .filtered = batch.num_filtered,
                         .divisor = batch.divisor,
                         .data_wait_s = run.loader->stats().last_wait_s});
  return {};
}

// The values that skip-step compares, as its variant takes them.
void AppendToHistory(Run& run, const StepMetrics& metrics) {
  const StepOptions& options = run.trainer->options().step;
  if (options.skip_metrics == SkipMetrics::kCrossEntropyAndRawNorm)
    return run.state.history.Append(metrics.loss, metrics.grad_norm);
  const double norm = options.clip == optim::ClipRule::kOff
                          ? metrics.grad_norm
                          : std::min(metrics.grad_norm, options.max_grad_norm);
  run.state.history.Append(metrics.loss + metrics.z_loss, norm);
}

std::string IdsOf(const StartedStep& step) {
  const auto shown = std::min<size_t>(step.instance_ids.size(), kMaxListedIds);
  return fmt::format("{}{}",
                     fmt::join(step.instance_ids.begin(),
                               step.instance_ids.begin() + static_cast<int64_t>(shown), ", "),
                     shown < step.instance_ids.size()
                         ? fmt::format(" and {} more", step.instance_ids.size() - shown)
                         : "");
}

// A loss or norm that is not finite was not applied. What follows is the recipe's choice.
Status HandleNonFinite(Run& run, const StartedStep& step, const StepMetrics& metrics) {
  const std::string what =
      fmt::format("loss {}, gradient norm {}; not applied. Instances of the batch: {}",
                  metrics.loss, metrics.grad_norm, IdsOf(step));
  LogWarning("step {}: {}", step.step, what);
  TRY(RecordEvent(run, step.step, "non_finite", what));
  if (run.config.train.non_finite == "rollback") return RollBack(run);
  if (run.config.train.non_finite != "stop") return {};
  TRY(run.recorder->Flush());
  return FailedPreconditionError(
      "step {}: {}. train.non_finite = \"stop\" ends the run here; the last checkpoint is {}. Look "
      "at these instances with `ulmus data show`, or go on with train.non_finite = \"skip\"",
      step.step, what, run.last_checkpoint.empty() ? "none" : run.last_checkpoint.string());
}

Status CountSkipped(Run& run, const StartedStep& step, const StepMetrics& metrics) {
  RunState& state = run.state;
  if (metrics.applied) {
    state.skipped_in_a_row = 0;
    state.adam_count += run.config.optim.step_increment_bugfix ? 1 : 0;
    return {};
  }
  ++state.skipped;
  ++state.skipped_in_a_row;
  if (metrics.count == 0)
    LogWarning("step {}: no target in the batch; left out", step.step);
  else if (metrics.finite())
    LogWarning("step {}: loss {:.4f} or gradient norm {:.4f} beyond their limits; left out",
               step.step, metrics.loss, metrics.grad_norm);
  const int64_t limit = run.config.train.max_skipped_in_a_row;
  if (limit == 0 || state.skipped_in_a_row < limit) return {};
  return FailedPreconditionError(
      "steps {} to {} were all left out: nothing is learnt any more. Look at their loss and norm "
      "in "
      "{}, or raise train.max_skipped_in_a_row",
      step.step - limit + 1, step.step, run.paths().metrics().string());
}

struct Finished {
  StartedStep step;
  StepMetrics metrics;
};

// x86 makes NaNs with their sign set; "-nan" says no more than "nan".
double WithoutSign(double value) { return std::isnan(value) ? std::abs(value) : value; }

// Waits for the oldest step on the device and lets its outcome count.
Result<Finished> FinishStep(Run& run) {
  StepMetrics metrics = TRY(run.trainer->Finish());
  for (double* value : {&metrics.loss, &metrics.z_loss, &metrics.grad_norm, &metrics.update_norm})
    *value = WithoutSign(*value);
  for (double& norm : metrics.layer_norms) norm = WithoutSign(norm);
  Finished finished{std::move(run.started.front()), std::move(metrics)};
  run.started.pop_front();
  const StepMetrics& m = finished.metrics;
  if (m.count > 0 && m.finite()) AppendToHistory(run, m);
  TRY(CountSkipped(run, finished.step, m));
  if (!m.finite()) TRY(HandleNonFinite(run, finished.step, m));
  return finished;
}

void AddRates(Run& run, metrics::StepRecord& record) {
  const Run::Clock::time_point now = Run::Clock::now();
  record.step_s = SecondsBetween(std::exchange(run.last_finish, now), now);
  record.tokens_per_s = static_cast<double>(run.config.tokens_per_step()) / record.step_s;
  record.flops_per_s = record.tokens_per_s * run.flops_per_token;
  record.mfu = metrics::Mfu({.tokens_per_s = record.tokens_per_s,
                             .flops_per_token = run.flops_per_token,
                             .num_devices = run.trainer->options().mesh.num_devices(),
                             .peak_flops_per_s = run.peak_flops_per_s});
  if (const auto memory = metrics::ReadMemoryUse(); memory.ok())
    record.resident_bytes = memory->resident_bytes;
  record.device_bytes = run.trainer->step_executable().memory_stats().TotalBytes();
  record.wall_time_s = metrics::WallTimeS();
}

Status Record(Run& run, const Finished& finished) {
  const StartedStep& step = finished.step;
  const StepMetrics& m = finished.metrics;
  metrics::StepRecord record{.step = step.step,
                             .tokens = step.tokens,
                             .loss = m.loss,
                             .z_loss = m.z_loss,
                             .targets = m.count,
                             .loss_divisor = step.divisor,
                             .grad_norm = m.grad_norm,
                             .update_norm = m.update_norm,
                             .learning_rate = step.lr,
                             .applied = m.applied ? 1 : 0,
                             .skipped = run.state.skipped,
                             .adam_count = static_cast<int64_t>(run.state.adam_count),
                             .id_hash = step.id_hash,
                             .filtered = step.filtered,
                             .norms = {},
                             .flops_per_s = {},
                             .mfu = {},
                             .device_bytes = {}};
  for (size_t i = 0; i < m.layer_norms.size(); ++i)
    record.norms.push_back({"grad_norm/" + run.trainer->layer_norm_names()[i], m.layer_norms[i]});
  AddRates(run, record);
  if (step.step > run.first_step + 1) {  // the first one also waits for what starts up
    ++run.timed_steps;
    run.timed_s += record.step_s;
  }
  run.alarm.Add(record);
  run.last_record = record;
  return run.recorder->Write(record);
}

// All steps but the newest `keep` of those on the device.
Status FinishSteps(Run& run, int64_t keep) {
  while (run.trainer->num_pending() > keep) {
    const Finished finished = TRY(FinishStep(run));
    TRY(Record(run, finished));
  }
  return {};
}

Status Evaluate(Run& run) {
  run.last_heldout = TRY(run.heldout.Evaluate(*run.trainer));
  for (HeldOutLoss& set : run.last_heldout) {
    set.loss.sum = WithoutSign(set.loss.sum);
    const metrics::EvalRecord record{.step = run.state.step,
                                     .set = set.name,
                                     .loss = set.loss,
                                     .wall_time_s = metrics::WallTimeS()};
    run.alarm.Add(record);
    TRY(run.recorder->Write(record));
  }
  if (const auto alarm = run.alarm.Check())
    TRY(RecordEvent(run, run.state.step, metrics::kEventAlarm, *alarm));
  run.last_finish = Run::Clock::now();  // no step's time
  return {};
}

Status Save(Run& run) {
  if (run.last_saved == run.state.step) return {};
  TRY(SaveRun(run));
  TRY(RecordEvent(run, run.state.step, metrics::kEventSave, run.last_checkpoint.string()));
  run.last_finish = Run::Clock::now();
  return {};
}

bool Due(int64_t every, const Run& run) { return every > 0 && run.state.step % every == 0; }

bool Evaluates(const Run& run) { return run.config.eval.every > 0 && !run.heldout.empty(); }

// What comes before the first step of this process.
Status Begin(Run& run) {
  if (run.state.step == 0) {
    if (Evaluates(run) && run.config.eval.at_start) TRY(Evaluate(run));
    if (run.config.checkpoint.at_start) TRY(Save(run));
  }
  run.last_finish = Run::Clock::now();
  return {};
}

TrainSummary Summarize(const Run& run) {
  TrainSummary summary{.step = run.state.step,
                       .tokens = run.state.tokens,
                       .loss = {},
                       .heldout_loss = {},
                       .mfu = {},
                       .checkpoint = run.last_checkpoint};
  if (run.last_record) summary.loss = run.last_record->loss;
  if (!run.last_heldout.empty()) {
    metrics::SumCount sum;
    for (const HeldOutLoss& set : run.last_heldout) sum += set.loss;
    summary.heldout_loss = sum.mean();
  }
  if (run.timed_steps > 0)
    summary.tokens_per_s =
        static_cast<double>(run.timed_steps * run.config.tokens_per_step()) / run.timed_s;
  summary.mfu = metrics::Mfu({.tokens_per_s = summary.tokens_per_s,
                              .flops_per_token = run.flops_per_token,
                              .num_devices = run.trainer->options().mesh.num_devices(),
                              .peak_flops_per_s = run.peak_flops_per_s});
  return summary;
}

}  // namespace

Result<TrainSummary> Train(Run& run) {
  double first_step_s = 0;
  TRY(Begin(run));
  while (run.state.step < run.last_step && !StopRequested()) {
    const data::Batch* batch = TRY(NextBatch(run));
    TRY(run.trainer->Upload(*batch));
    std::optional<Finished> before;
    if (InLockstep(run) && run.trainer->num_pending() > 0) before = TRY(FinishStep(run));
    TRY(StartStep(run, *batch));
    if (before) TRY(Record(run, *before));  // while the device works
    TRY(FinishSteps(run, 1));

    const bool last = run.state.step == run.last_step;
    const bool evaluate = Evaluates(run) && (last || Due(run.config.eval.every, run));
    const bool save = last || StopRequested() || Due(run.config.checkpoint.every, run);
    const bool first = first_step_s == 0;
    if (evaluate || save || first) TRY(FinishSteps(run, 0));
    if (first) first_step_s = SecondsBetween(run.process_start, Run::Clock::now());
    if (evaluate) TRY(Evaluate(run));
    if (save) TRY(Save(run));
  }
  TRY(FinishSteps(run, 0));
  TRY(Save(run));
  const bool stopped = run.state.step < run.last_step;
  TRY(RecordEvent(run, run.state.step, stopped ? metrics::kEventStop : metrics::kEventComplete,
                  stopped ? StopSignalName() : ""));
  TRY(run.recorder->Flush());
  const auto& last = run.last_record;
  if (!stopped && last && !(std::isfinite(last->loss) && std::isfinite(last->grad_norm)))
    return FailedPreconditionError(
        "step {}: loss {}, gradient norm {}, and the last {} steps were left out: this model is "
        "lost. Older "
        "checkpoints are kept; go on from one with --from-step and a lower rate",
        run.state.step, last->loss, last->grad_norm, run.state.skipped_in_a_row);
  TrainSummary summary = Summarize(run);
  summary.stopped = stopped;
  summary.first_step_s = first_step_s;
  return summary;
}

}  // namespace ulmus::train
