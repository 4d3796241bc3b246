// Opens weights wherever they are. The only place that tells one kind of directory from another.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/tensor_source.h"

namespace ulmus::checkpoint {

enum class WeightFormat { kHf, kSafetensorsFile, kUlmus };
std::string_view Name(WeightFormat format);

struct OpenedSource {
  WeightFormat format = WeightFormat::kHf;
  Path path;  // what is read: of a run directory, the checkpoint chosen
  std::unique_ptr<TensorSource> tensors;
  std::optional<HfLayout> layout;  // of the Hugging Face directory it is or came from
  // config.json: the side file, or the file beside a single .safetensors file.
  std::optional<std::string> config_json;
};

// A Hugging Face directory, one .safetensors file, one of our checkpoints, or a run directory: its
// newest checkpoint that is complete. Anything else is an error that says what it is and what to
// do.
Result<OpenedSource> OpenSource(const Path& path);

// True if an existing path may be replaced: an empty directory or one of weights.
bool IsReplaceable(const Path& path);

}  // namespace ulmus::checkpoint
