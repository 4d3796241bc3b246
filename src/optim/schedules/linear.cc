#include "optim/schedules/table.h"

namespace ulmus::optim {

const ScheduleDef kLinear = {
    .name = "linear",
    .help = "linear warm-up, straight line to the end (OLMo-core LinearWithWarmup)",
    .uses_t_max = true,
    .lr =
        [](const SchedulePhase& phase, int64_t current) {
          const double end = phase.lr * phase.final_fraction;
          if (current < phase.warmup) return Warmup(phase, phase.lr, current);
          if (current >= phase.t_max) return end;
          return phase.lr - (phase.lr - end) * (static_cast<double>(current - phase.warmup) /
                                                static_cast<double>(phase.t_max - phase.warmup));
        },
};

}  // namespace ulmus::optim
