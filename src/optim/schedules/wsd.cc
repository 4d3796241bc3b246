#include "optim/schedules/table.h"

namespace ulmus::optim {

const ScheduleDef kWsd = {
    .name = "wsd",
    .help = "warm-up, stable, linear decay over the last `decay` (OLMo-core WSD)",
    .uses_t_max = true,
    .uses_decay = true,
    .lr =
        [](const SchedulePhase& phase, int64_t current) {
          if (current < phase.warmup) return Warmup(phase, phase.lr, current);
          const int64_t left = phase.t_max - current;
          if (phase.decay == 0 || left > phase.decay) return phase.lr;
          return left <= 0 ? phase.decay_min_lr
                           : LinearDecay(phase.lr, phase.decay_min_lr, left, phase.decay);
        },
};

}  // namespace ulmus::optim
