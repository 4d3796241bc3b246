#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/edit_distance.h"

namespace ulmus::optim {
namespace {

const ScheduleDef* Find(std::string_view kind) {
  const auto table = Schedules();
  const auto it = std::ranges::find(table, kind, &ScheduleDef::name);
  return it == table.end() ? nullptr : &*it;
}

Status UnknownKind(const std::string& kind) {
  std::vector<std::string> names;
  for (const ScheduleDef& def : Schedules()) names.emplace_back(def.name);
  const auto nearest = NearestKey(kind, names);
  return InvalidArgumentError("schedule: there is no kind '{}'{}; kinds are {}", kind,
                              nearest ? fmt::format("; did you mean '{}'?", *nearest) : "",
                              fmt::join(names, ", "));
}

bool IsRate(double lr) { return std::isfinite(lr) && lr >= 0; }

Status ValidatePhase(const SchedulePhase& phase) {
  const ScheduleDef* def = Find(phase.kind);
  if (def == nullptr) return UnknownKind(phase.kind);
  const auto wrong = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    return InvalidArgumentError("schedule {}: {}", phase.kind,
                                fmt::format(format, std::forward<Args>(args)...));
  };
  if (!IsRate(phase.lr) || (phase.lr == 0 && !phase.restart))
    return wrong("lr = {}, expected a positive number", phase.lr);
  if (!(phase.final_fraction >= 0 && phase.final_fraction <= 1))
    return wrong("final_fraction = {}, expected 0 to 1", phase.final_fraction);
  if (phase.warmup < 0 || phase.decay < 0 || phase.t_max < 0 || phase.until < 0)
    return wrong("warmup = {}, decay = {}, t_max = {}, until = {}: lengths are not negative",
                 phase.warmup, phase.decay, phase.t_max, phase.until);
  for (const double min : {phase.warmup_min_lr, phase.decay_min_lr}) {
    if (!IsRate(min) || (!phase.restart && min > phase.lr))
      return wrong("lowest rate {}, expected 0 to the peak of {}", min, phase.lr);
  }
  if (!std::isfinite(phase.exponent)) return wrong("exponent = {}", phase.exponent);
  if (def->uses_t_max && phase.t_max < 1)
    return wrong("t_max = {}, expected the position of its end", phase.t_max);
  if (def->uses_t_max && def->uses_warmup && phase.warmup > phase.t_max)
    return wrong("warmup {} > t_max {}", phase.warmup, phase.t_max);
  if (def->uses_decay && phase.warmup + phase.decay > phase.t_max)
    return wrong("warmup {} + decay {} = {} > t_max {}", phase.warmup, phase.decay,
                 phase.warmup + phase.decay, phase.t_max);
  if (def->needs_warmup && phase.warmup < 1)
    return wrong("warmup = 0: its curve is a power of position/warmup, expected at least 1");
  return {};
}

// The peak and the origin of a phase that restarts depend on the phases before it.
struct Placed {
  SchedulePhase phase;
  int64_t start = 0;
};

double RateAt(const Placed& placed, int64_t current) {
  return Find(placed.phase.kind)->lr(placed.phase, current - placed.start);
}

}  // namespace

Status ValidateSchedule(const Schedule& schedule) {
  if (schedule.phases.empty())
    return InvalidArgumentError("schedule: no phase; give at least one `kind`");
  int64_t before = 0;
  for (size_t i = 0; i < schedule.phases.size(); ++i) {
    const SchedulePhase& phase = schedule.phases[i];
    TRY(ValidatePhase(phase));
    const bool last = i + 1 == schedule.phases.size();
    if (last) break;
    if (phase.until <= before) {
      return InvalidArgumentError(
          "schedule: phase {} of {} ends at {}, the one before at {}; each but the last needs an "
          "`until` beyond the one before",
          i + 1, schedule.phases.size(), phase.until, before);
    }
    before = phase.until;
  }
  if (schedule.phases.front().restart)
    return InvalidArgumentError("schedule: phase 1 has nothing before it to restart from");
  return {};
}

double LearningRate(const Schedule& schedule, int64_t step, int64_t tokens) {
  const int64_t current = schedule.unit == ScheduleUnit::kSteps ? step : tokens;
  CHECK(!schedule.phases.empty(), "schedule without phases");
  Placed placed{.phase = schedule.phases.front()};
  for (size_t i = 0; i + 1 < schedule.phases.size() && current > placed.phase.until; ++i) {
    const int64_t end = placed.phase.until;
    Placed next{.phase = schedule.phases[i + 1]};
    if (next.phase.restart) {
      next.phase.lr = RateAt(placed, end);
      next.start = end;
    }
    placed = std::move(next);
  }
  return RateAt(placed, current);
}

}  // namespace ulmus::optim
