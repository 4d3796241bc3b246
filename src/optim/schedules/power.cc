#include <cmath>

#include "optim/schedules/table.h"

namespace ulmus::optim {

const ScheduleDef kInverseSqrt = {
    .name = "inverse_sqrt",
    .help = "linear warm-up, then falling as 1/sqrt(position) (OLMo-core InvSqrtWithWarmup)",
    .needs_warmup = true,
    .lr =
        [](const SchedulePhase& phase, int64_t current) {
          if (current < phase.warmup) return Warmup(phase, phase.lr, current);
          const double end = phase.lr * phase.final_fraction;
          return end + (phase.lr - end) * std::sqrt(static_cast<double>(phase.warmup) /
                                                    static_cast<double>(current));
        },
};

const ScheduleDef kPowerLaw = {
    .name = "power_law",
    .help = "linear warm-up, then (position/warmup)^exponent",
    .needs_warmup = true,
    .lr =
        [](const SchedulePhase& phase, int64_t current) {
          if (current < phase.warmup) return Warmup(phase, phase.lr, current);
          return phase.lr *
                 std::pow(static_cast<double>(current) / static_cast<double>(phase.warmup),
                          phase.exponent);
        },
};

}  // namespace ulmus::optim
