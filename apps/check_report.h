// What `ulmus check` finds out about a recipe: all that can be told without a device.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "base/status.h"
#include "nn/olmo3/init.h"
#include "train/memory.h"
#include "train/run_config.h"

namespace ulmus::apps {

struct CheckInput {
  std::string recipe;  // a file, or a preset's name
  std::vector<std::string> flags;
  int64_t devices = 0;  // 0: as the mesh says
  std::string device;   // kind that memory must fit: "cpu", "TPU v5p"; empty: not judged
  std::string run_dir;  // where checkpoints go; empty: not judged, free space of "." is stated
  bool init_table = false;
};

// Learning rate of one update.
struct RatePoint {
  std::string what;
  int64_t step = 0;
  double lr = 0;
};

// Tensors of one kind and shape in all layers that decay and learn alike.
struct ParameterRow {
  std::string name;  // `*` for the layer
  Shape shape;
  int64_t tensors = 0;
  double weight_decay = 0, lr_factor = 1;
};

struct DataFacts {
  int64_t instances = 0, files = 0, size_bytes = 0;
  int64_t left_over = 0;         // instances that an epoch leaves out
  std::optional<int64_t> steps;  // none: it wraps
  std::string order, fingerprint;
};

struct DiskFacts {
  std::string folder;
  int64_t checkpoints = 0;  // at the most, the one being written included
  int64_t checkpoint_bytes = 0, needed_bytes = 0, free_bytes = 0;
};

// Does a step fit the devices?
struct MemoryFit {
  std::string device;                   // kind; empty: none was named
  std::optional<int64_t> device_bytes;  // what one device of the mesh may use; none: not known
  std::optional<bool> fits;             // none: cannot be told
};

struct CheckReport {
  std::vector<RecipeError> errors;
  bool only_damage = true;  // all of the errors are damaged data or checkpoints
  std::vector<std::string> warnings;
  // Below: as far as the errors let it be known.
  std::optional<train::RunConfig> config;
  Mesh mesh;
  int64_t params = 0, padded_params = 0, state_bytes = 0;
  std::optional<train::MemoryEstimate> memory;
  MemoryFit fit;
  std::vector<ParameterRow> parameters;
  std::optional<int64_t> last_step;
  std::vector<RatePoint> rates;
  std::optional<DataFacts> data;
  std::optional<DiskFacts> disk;
  std::vector<std::pair<std::string, double>> flops_per_token;  // by formula
  std::vector<nn::olmo3::InitRow> init;

  bool holds() const { return errors.empty(); }
  ExitCode exit_code() const {
    if (holds()) return kExitOk;
    return only_damage ? kExitDataLoss : kExitUsage;
  }
};

CheckReport CheckRun(const CheckInput& input);

}  // namespace ulmus::apps
