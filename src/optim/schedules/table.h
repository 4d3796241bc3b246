// The kinds of schedule, one file each. Sources: OLMo-core optim/scheduler.py, MaxText
// create_learning_rate_schedule.
#pragma once

#include "optim/schedule.h"

namespace ulmus::optim {

extern const ScheduleDef kConstant, kConstantWithWarmup, kCosine, kCosineLinear, kHalfCosine,
    kInverseSqrt, kLinear, kMaxTextCosine, kPowerLaw, kWsd;

// min + (lr - min) * current / warmup, the rate of a position inside the warm-up.
double Warmup(const SchedulePhase& phase, double lr, int64_t current);

// From `lr` at `left` = length down to `min` at left = 0.
double LinearDecay(double lr, double min, int64_t left, int64_t length);

}  // namespace ulmus::optim
