#include "metrics/console_sink.h"

#include "metrics/step_record.h"

namespace ulmus::metrics {
namespace {

std::string Percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.1f} %", 100 * *share) : "n/a";
}

std::string Describe(const StepRecord& record, int64_t total_steps) {
  std::string line = fmt::format(
      "step {}/{}: loss {:.4f}, grad norm {:.3f}, lr {:.3g}, {:.0f} tokens/s, MFU {}, waited {} "
      "for "
      "data",
      record.step, total_steps, record.loss, record.grad_norm, record.learning_rate,
      record.tokens_per_s, Percent(record.mfu),
      Percent(record.step_s > 0 ? std::optional(record.data_wait_s / record.step_s)
                                : std::nullopt));
  if (record.skipped > 0) line += fmt::format(", {} skipped", record.skipped);
  return line;
}

}  // namespace

ConsoleSink::ConsoleSink(ConsoleOptions options) : options_(std::move(options)) {
  if (!options_.progress.terminal.value_or(IsTerminal())) return;
  // Counted from where this start begins, as the remaining time follows from its own rate.
  ProgressOptions progress = options_.progress;
  progress.unit = "steps";
  progress_.emplace("train", options_.total_steps - options_.resume_step, std::move(progress));
}

Status ConsoleSink::Write(const Record& record) {
  std::visit([&](const auto& r) { Show(r); }, record);
  return {};
}

void ConsoleSink::Show(const StepRecord& record) {
  if (progress_) progress_->Update(record.step - options_.resume_step);
  const bool shown = record.step == options_.resume_step + 1 ||
                     record.step == options_.total_steps || record.applied == 0 ||
                     record.step % options_.line_interval == 0;
  if (!shown) return;
  std::string line = Describe(record, options_.total_steps);
  if (record.applied == 0) line += "; this update was skipped";
  Print(record.applied == 0 ? LogLevel::kWarning : LogLevel::kInfo, line);
}

void ConsoleSink::Show(const EvalRecord& record) {
  Print(LogLevel::kInfo, fmt::format("step {}: held-out {} {:.4f} over {} targets", record.step,
                                     record.set, record.loss.mean(), record.loss.count));
}

void ConsoleSink::Show(const EventRecord& record) {
  if (record.name == kEventPassedOver) return;  // whoever found the damage has warned of it
  const LogLevel level = record.name == kEventAlarm ? LogLevel::kWarning : LogLevel::kInfo;
  Print(level, fmt::format("step {}: {}{}{}", record.step, record.name,
                           record.text.empty() ? "" : ": ", record.text));
}

void ConsoleSink::Print(LogLevel level, const std::string& line) {
  if (options_.log) return options_.log(level, line);
  Log(level, "{}", line);
}

}  // namespace ulmus::metrics
