// Learning rates as stateless functions of the position in training: asked again after a resume,
// they answer the same.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ulmus::optim {

// One curve. Lengths and positions are in the schedule's unit, steps or tokens; what a kind does
// not use stays as it is.
struct SchedulePhase {
  std::string kind = "cosine";  // a name of Schedules()
  double lr = 3e-4;             // the peak
  int64_t warmup = 0;           // linear, from warmup_min_lr to the peak
  int64_t t_max = 0;            // where the curve reaches its end
  double final_fraction = 0.1;  // the end, as a fraction of the peak (OLMo-core: alpha_f)
  int64_t decay = 0;            // length of the linear decay at the end (wsd, cosine_linear)
  double warmup_min_lr = 0;
  double decay_min_lr = 0;
  double exponent = -0.51;  // power_law: OLMo-core's b
  int64_t until = 0;        // last position of this phase; 0: to the end, in the last phase only
  // Positions count from the end of the phase before, and the peak is the rate reached there
  // (OLMo-core SequentialScheduler). Otherwise positions go on counting.
  bool restart = false;
};

enum class ScheduleUnit { kSteps, kTokens };

struct Schedule {
  ScheduleUnit unit = ScheduleUnit::kSteps;
  std::vector<SchedulePhase> phases;  // at least one
};

// What a kind needs besides `lr`, and its curve.
struct ScheduleDef {
  std::string_view name;
  std::string_view help;
  bool uses_t_max = false, uses_decay = false, uses_warmup = true;
  bool needs_warmup = false;  // of at least 1: the curve divides by it
  // `current`: position after the update counts, so the first update has 1 (or the tokens of the
  // first batch).
  double (*lr)(const SchedulePhase& phase, int64_t current) = nullptr;
};

// schedules/table.cc; add a row and a file to add a kind.
std::span<const ScheduleDef> Schedules();

// kInvalidArgument for an unknown kind (names the nearest), a length that does not fit (prints the
// numbers: warm-up 3000 > t_max 2000), a rate that is not positive and finite, phases out of order.
Status ValidateSchedule(const Schedule& schedule);

// The rate of the update that brings the run to `step` updates and `tokens` tokens: the first
// update of a run has step 1. The schedule must be valid (CHECK).
double LearningRate(const Schedule& schedule, int64_t step, int64_t tokens);

}  // namespace ulmus::optim
