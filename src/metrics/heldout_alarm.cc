#include "metrics/heldout_alarm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ulmus::metrics {
namespace {

constexpr std::string_view kAdvice =
    "this is how a model looks that learns repeated data by heart; run `ulmus data audit` to see "
    "which instances were used more than once";

}  // namespace

void HeldoutAlarm::Add(const Record& record) {
  if (const auto* step = std::get_if<StepRecord>(&record)) AddStep(*step);
  if (const auto* eval = std::get_if<EvalRecord>(&record)) AddEval(*eval);
}

void HeldoutAlarm::AddStep(const StepRecord& record) {
  if (record.applied == 0 || !std::isfinite(record.loss) || record.loss_divisor <= 0) return;
  window_.push_back({record.loss * static_cast<double>(record.loss_divisor), record.loss_divisor});
  if (std::ssize(window_) > options_.window_steps) window_.pop_front();
}

void HeldoutAlarm::AddEval(const EvalRecord& record) {
  if (window_.empty() || !std::isfinite(record.loss.mean())) return;
  if (points_.empty() || points_.back().step != record.step) {
    SumCount train;
    for (const SumCount& loss : window_) train += loss;
    points_.push_back({record.step, train.mean(), {}});
  }
  points_.back().heldout[record.set] = record.loss.mean();
}

std::optional<std::string> HeldoutAlarm::Check() const {
  if (points_.empty()) return std::nullopt;
  const Point& now = points_.back();
  if (std::optional<std::string> text = CheckGap(now)) return text;
  const auto before = std::find_if(points_.rbegin() + 1, points_.rend(), [&](const Point& point) {
    return point.train - now.train >= options_.min_train_fall;
  });
  return before == points_.rend() ? std::nullopt : CheckFollow(*before, now);
}

std::optional<std::string> HeldoutAlarm::CheckGap(const Point& now) const {
  const auto nearest =
      std::min_element(now.heldout.begin(), now.heldout.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const double gap = nearest->second - now.train;
  if (gap <= options_.max_gap) return std::nullopt;
  return fmt::format(
      "training loss {:.4f} is {:.4f} below every held-out set (the nearest is {}, {:.4f}; allowed "
      "is {:.4f}): {}",
      now.train, gap, nearest->first, nearest->second, options_.max_gap, kAdvice);
}

std::optional<std::string> HeldoutAlarm::CheckFollow(const Point& before, const Point& now) const {
  const double train_fall = before.train - now.train;
  const double wanted = options_.min_follow * train_fall;
  std::string sets;
  for (const auto& [set, loss] : now.heldout) {
    const auto old = before.heldout.find(set);
    if (old == before.heldout.end()) continue;
    if (old->second - loss >= wanted) return std::nullopt;
    sets += fmt::format("{}{} {:.4f} -> {:.4f}", sets.empty() ? "" : ", ", set, old->second, loss);
  }
  if (sets.empty()) return std::nullopt;
  return fmt::format(
      "training loss fell from {:.4f} to {:.4f} between steps {} and {}, held-out loss did not "
      "follow ({}; a fall by {:.4f} was expected): {}",
      before.train, now.train, before.step, now.step, sets, wanted, kAdvice);
}

}  // namespace ulmus::metrics
