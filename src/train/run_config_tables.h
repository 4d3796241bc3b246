// Keys of a run bound to the tables of run_config.h. Inside train/ only.
#pragma once

#include "train/run_config.h"

namespace ulmus::train {

struct RunTables {
  StructSchema<TrainTable> train;
  StructSchema<MeshTable> mesh;
  StructSchema<OptimTable> optim;
  StructSchema<ScheduleTable> schedule;
  StructSchema<EvalTable> eval;
  StructSchema<CheckpointTable> checkpoint;
  StructSchema<MetricsTable> metrics;
};
const RunTables& Tables();

// `status` of a recipe's file, with the presets that `name` may have meant if there is no such
// file.
Status NoSuchRecipe(std::string_view name, const Status& status);

}  // namespace ulmus::train
