#include <cmath>
#include <numbers>

#include "optim/schedules/table.h"

namespace ulmus::optim {
namespace {

// From `lr` at position 0 to `end` at position `length`.
double HalfWave(double lr, double end, double position, double length) {
  return end + (lr - end) * (1 + std::cos(std::numbers::pi * position / length)) / 2;
}

double Cosine(const SchedulePhase& phase, int64_t current) {
  const double end = phase.lr * phase.final_fraction;
  if (current < phase.warmup) return Warmup(phase, phase.lr, current);
  if (current >= phase.t_max) return end;
  return HalfWave(phase.lr, end, static_cast<double>(current - phase.warmup),
                  static_cast<double>(phase.t_max - phase.warmup));
}

// The second half of a cosine: warms up to its middle, lr/2 + end/2, and goes on from there.
double HalfCosine(const SchedulePhase& phase, int64_t current) {
  const double end = phase.lr * phase.final_fraction;
  if (current < phase.warmup) return Warmup(phase, end + (phase.lr - end) / 2, current);
  if (current >= phase.t_max) return end;
  const auto length = static_cast<double>(phase.t_max - phase.warmup);
  return HalfWave(phase.lr, end, static_cast<double>(current - phase.warmup) + length, 2 * length);
}

// A cosine that would reach its end at t_max, left `decay` before it on a straight line.
double CosineLinear(const SchedulePhase& phase, int64_t current) {
  const int64_t left = phase.t_max - current;
  if (phase.decay == 0 || left > phase.decay) return Cosine(phase, current);
  if (left <= 0) return phase.decay_min_lr;
  return LinearDecay(Cosine(phase, phase.t_max - phase.decay), phase.decay_min_lr, left,
                     phase.decay);
}

// MaxText counts updates from 0, so the first has rate 0; its cosine reaches the end one update
// before t_max, and after t_max the rate is 0.
double MaxTextCosine(const SchedulePhase& phase, int64_t current) {
  const int64_t count = current - 1;
  if (count < phase.warmup)
    return phase.lr * static_cast<double>(count) / static_cast<double>(phase.warmup);
  if (count >= phase.t_max) return 0;
  const int64_t last = phase.t_max - phase.warmup - 1;
  const double at =
      last == 0 ? 1 : static_cast<double>(count - phase.warmup) / static_cast<double>(last);
  const double a = 0.5 * (std::cos(std::numbers::pi * at) + 1);
  return phase.lr * a + phase.lr * phase.final_fraction * (1 - a);
}

}  // namespace

const ScheduleDef kCosine = {.name = "cosine",
                             .help = "linear warm-up, cosine to the end (OLMo-core CosWithWarmup)",
                             .uses_t_max = true,
                             .lr = Cosine};
const ScheduleDef kHalfCosine = {
    .name = "half_cosine",
    .help = "the second half of a cosine (OLMo-core HalfCosWithWarmup)",
    .uses_t_max = true,
    .lr = HalfCosine};
const ScheduleDef kCosineLinear = {
    .name = "cosine_linear",
    .help = "cosine cut short by a linear decay (OLMo-core CosWithWarmupAndLinearDecay)",
    .uses_t_max = true,
    .uses_decay = true,
    .lr = CosineLinear};
const ScheduleDef kMaxTextCosine = {.name = "maxtext_cosine",
                                    .help = "MaxText's cosine: the first update has rate 0",
                                    .uses_t_max = true,
                                    .lr = MaxTextCosine};

}  // namespace ulmus::optim
