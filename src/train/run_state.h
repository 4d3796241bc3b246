// What the host knows of a run's place: counters, histories, the data cursor. With the device's
// state it is all that a run goes on from, bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "data/loader_state.h"
#include "optim/skip_step.h"

namespace ulmus::train {

struct RunState {
  int64_t step = 0;              // steps made, those left out included
  int64_t tokens = 0;            // read by them
  int64_t skipped = 0;           // steps left out
  int64_t skipped_in_a_row = 0;  // the last so many
  double adam_count = 0;         // updates behind the moments; goes on over a change of stage
  optim::SkipHistory history;
  data::ConsumedIds consumed;  // of this run

  // Applied steps: what MaxText's schedule counts when it skips.
  int64_t applied() const { return step - skipped; }
};

// The `train_state.json` of a checkpoint: docs/formats/train_state.md.
// `recipe_hash`: Recipe::Hash of the recipe in force.
std::string PrintTrainState(const RunState& state, const data::LoaderState& loader,
                            std::string_view recipe_hash);

struct TrainState {
  RunState run;
  data::LoaderState loader;
  std::string recipe_hash;
};
// kDataLoss names the field that is missing or wrong. `name` stands for the text in messages.
Result<TrainState> ParseTrainState(std::string_view json, const optim::SkipOptions& skip,
                                   std::string_view name);

}  // namespace ulmus::train
