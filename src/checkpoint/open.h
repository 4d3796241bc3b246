// Opens weights wherever they are: one of our checkpoints, a Hugging Face directory, or a run
// directory by its latest checkpoint.
#pragma once

#include <memory>

#include "base/file.h"
#include "checkpoint/tensor_source.h"

namespace ulmus::checkpoint {

struct OpenedSource {
  std::unique_ptr<TensorSource> tensors;
  Path folder;  // where they are: of a run directory, the checkpoint chosen
};

// kNotFound names what was looked for. Of a run directory the newest checkpoint that opens; those
// passed over are logged with the reason.
Result<OpenedSource> OpenSource(const Path& path);

}  // namespace ulmus::checkpoint
