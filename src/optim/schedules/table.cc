#include "optim/schedules/table.h"

#include <algorithm>

namespace ulmus::optim {

std::span<const ScheduleDef> Schedules() {
  static const ScheduleDef table[] = {
      kConstant, kConstantWithWarmup, kCosine,   kCosineLinear, kHalfCosine, kInverseSqrt,
      kLinear,   kMaxTextCosine,      kPowerLaw, kWsd};
  return table;
}

double Warmup(const SchedulePhase& phase, double lr, int64_t current) {
  const double min = phase.warmup_min_lr;
  return min + (lr - min) * static_cast<double>(std::min(current, phase.warmup)) /
                   static_cast<double>(phase.warmup);
}

double LinearDecay(double lr, double min, int64_t left, int64_t length) {
  return min +
         (lr - min) * static_cast<double>(std::min(left, length)) / static_cast<double>(length);
}

}  // namespace ulmus::optim
