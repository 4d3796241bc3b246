// What a path on the command line of `convert` is, and how to read it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/tensor_source.h"

namespace ulmus::apps {

enum class WeightFormat { kHf, kSafetensorsFile, kUlmus };
std::string_view Name(WeightFormat format);

struct WeightSource {
  WeightFormat format = WeightFormat::kHf;
  Path path;  // what is read: of a run directory the checkpoint chosen
  std::unique_ptr<checkpoint::TensorSource> tensors;
  std::optional<checkpoint::HfLayout> layout;  // of the Hugging Face directory it is or came from
  std::optional<std::string> config_json;      // its side file
};

// Recognises a Hugging Face directory, one .safetensors file, one of our checkpoints and a run
// directory (its latest checkpoint that is whole). Anything else is an error that says what it is
// and what to do.
Result<WeightSource> OpenWeightSource(const Path& path);

// True if an existing path may be replaced by --overwrite: an empty directory or one of weights.
bool IsReplaceable(const Path& path);

}  // namespace ulmus::apps
