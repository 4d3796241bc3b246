// Streams tensors from a source to a sink: one thread reads and converts, the caller's thread
// writes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "checkpoint/tensor_source.h"

namespace ulmus::checkpoint {

// One tensor to write. Differences from the source's: another float type is converted with one
// rounding; rows (axis 0) beyond the source's are zero, fewer are cut.
struct TensorCopy {
  int64_t source_index = 0;
  TensorInfo target;
};

struct CopyOptions {
  int64_t buffer_bytes = int64_t{8} << 20;  // of each of the buffers
  int64_t num_buffers = 4;                  // bound on memory: buffers x 2
  // Called on the caller's thread with the bytes written so far.
  std::function<void(int64_t)> progress = nullptr;
  // Asked between pieces; true ends the copy with kCancelled.
  std::function<bool()> stop = nullptr;
};

// Writes `copies` in order; Begin and Append of the sink only. kOutOfRange if a finite value
// becomes infinite in the target type. CHECKs that types can be converted and only axis 0 differs.
Status CopyTensors(const TensorSource& source, std::span<const TensorCopy> copies, TensorSink& sink,
                   const CopyOptions& options = {});

}  // namespace ulmus::checkpoint
