// Saves and restores a trainer's state: one array per Hugging Face tensor in f32, with its moments
// beside it, whatever mesh it lies on. Format: docs/formats/checkpoint.md, train_state.md.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "checkpoint/tensor_source.h"
#include "train/run_state.h"
#include "train/trainer.h"

namespace ulmus::train {

// "exp_avg." or "exp_avg_sq." before the weight's name.
inline constexpr const char* kStatePrefixes[kTensorsPerParameter] = {"", "exp_avg.", "exp_avg_sq."};

// The arrays of a checkpoint, in the order in which they are written. Embedding and head keep their
// padding rows: they train like the others.
std::vector<checkpoint::TensorInfo> StateTensors(const Trainer& trainer);

struct SaveOptions {
  // Small files carried along: config.json, tokenizer.json.
  std::vector<std::pair<std::string, std::string>> side_files;
  bool overwrite = false;
};

// Appears at `path` complete or not at all. Waits for the last step; host memory holds one
// parameter at a time. Errors as checkpoint::NativeWriter.
Status SaveState(const Trainer& trainer, int64_t step, const std::string& train_state,
                 const Path& path, const SaveOptions& options);

// What to take from a checkpoint.
enum class RestoreParts { kWeights, kAll };

// Fills the trainer's state from any source of tensors; device by device only the blocks it needs
// are read. Moments that are not taken become 0. kDataLoss lists all tensors that are missing or
// have another shape; floats of other types are converted, padding rows that the source lacks
// become 0.
Status RestoreState(Trainer& trainer, const checkpoint::TensorSource& source, RestoreParts parts,
                    const std::string& name);

}  // namespace ulmus::train
