// The training loop.
#pragma once

#include <cstdint>
#include <optional>

#include "base/file.h"
#include "base/status.h"
#include "train/run.h"

namespace ulmus::train {

struct TrainSummary {
  int64_t step = 0, tokens = 0;
  std::optional<double> loss, heldout_loss;  // of the last step; mean over all held-out targets
  double tokens_per_s = 0;                   // of this process, first step left out
  std::optional<double> mfu;
  Path checkpoint;          // the last one
  bool stopped = false;     // by a signal, after a complete save
  double first_step_s = 0;  // from the start of the process to the end of its first step
};

// Trains from where `run` stands to its last step. Evaluates, saves and records as the recipe says;
// a stop signal ends it at the next step with a checkpoint.
Result<TrainSummary> Train(Run& run);

}  // namespace ulmus::train
