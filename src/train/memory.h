// What a training step needs of a device's memory, from sizes alone: for `check`, before anything
// is compiled.
#pragma once

#include <cstdint>

#include "nn/olmo3/config.h"
#include "tensor/mesh.h"
#include "train/step_program.h"

namespace ulmus::train {

// Bytes on one device.
struct MemoryEstimate {
  int64_t weights = 0;      // f32
  int64_t moments = 0;      // two of them, f32 unless said otherwise
  int64_t batch = 0;        // of one step
  int64_t gradients = 0;    // f32, and the sums over microbatches
  int64_t activations = 0;  // of one microbatch: what the remat policy keeps and what is at work

  int64_t state() const { return weights + moments; }
  int64_t total() const { return state() + batch + gradients + activations; }
};

// `options` and `mesh` must be valid (ValidateStep). Activations are those that XLA's CPU compiler
// lays out: within 10 % of memory_stats() for the presets tiny, demo and reference_run. Too high
// for policies that keep values where a model has one group of layers only; other compilers fuse
// more, and need less.
MemoryEstimate EstimateMemory(const nn::olmo3::Config& model, const StepOptions& options,
                              const Mesh& mesh);

}  // namespace ulmus::train
