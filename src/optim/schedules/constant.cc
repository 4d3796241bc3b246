#include "optim/schedules/table.h"

namespace ulmus::optim {

const ScheduleDef kConstant = {
    .name = "constant",
    .help = "the peak throughout",
    .uses_warmup = false,
    .lr = [](const SchedulePhase& phase, int64_t) { return phase.lr; },
};

const ScheduleDef kConstantWithWarmup = {
    .name = "constant_with_warmup",
    .help = "linear warm-up, then the peak",
    .lr =
        [](const SchedulePhase& phase, int64_t current) {
          return current < phase.warmup ? Warmup(phase, phase.lr, current) : phase.lr;
        },
};

}  // namespace ulmus::optim
