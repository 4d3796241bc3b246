// Named tensors on their way between formats: a source that is read in parts, a sink that is
// written in pieces. Nothing here holds a whole model; 7B weights pass through buffers of a few
// MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/shape.h"

namespace ulmus::checkpoint {

// A side file (config.json, a tokenizer) is carried along as opaque bytes, at most this many.
inline constexpr int64_t kMaxSideFileBytes = int64_t{64} << 20;

struct TensorInfo {
  std::string name;
  TensorType type;

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

// Named tensors that can be read in parts. Const functions may be called from any thread at once.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Sorted by name, bytewise; no name twice.
  virtual std::span<const TensorInfo> tensors() const = 0;

  // Elements [first, first + out.size() / element size) of tensor `index`, row-major, in its stored
  // dtype, little-endian. Whole elements inside the tensor only (CHECKed). kDataLoss if the bytes
  // are damaged.
  virtual Status Read(int64_t index, int64_t first, std::span<std::byte> out) const = 0;

  // The block of shape `block` at `offsets`, row-major. By default one Read per contiguous run.
  virtual Status ReadBlock(int64_t index, const Dims& offsets, const Shape& block,
                           std::span<std::byte> out) const;

  // The order in which reading is fastest, as indices into tensors(): that of the files. By default
  // the order of names.
  virtual std::vector<int64_t> StorageOrder() const;

  // Side files kept beside the tensors: base names, sorted.
  virtual std::vector<std::string> SideFiles() const { return {}; }
  // kNotFound if there is none of that name; kOutOfRange if it is beyond kMaxSideFileBytes.
  virtual Result<std::string> LoadSideFile(std::string_view name) const;
};

// Position of a name in source.tensors(), or nullopt.
std::optional<int64_t> FindTensor(const TensorSource& source, std::string_view name);

// Receives tensors one after the other. Which tensors and in which order is settled when the sink
// is made. Nothing appears under its final name before Commit(); a sink destroyed without it leaves
// nothing behind. After an error only destruction is allowed. One thread.
class TensorSink {
 public:
  virtual ~TensorSink() = default;

  // Starts the next tensor; all bytes of the one before must have arrived.
  virtual Status Begin(const TensorInfo& tensor) = 0;
  // The next bytes of the tensor, row-major, little-endian, any whole number of elements.
  virtual Status Append(std::span<const std::byte> bytes) = 0;
  // Keeps a side file; between tensors or after the last one. `name` is a base name.
  virtual Status AddSideFile(std::string_view name, std::string_view bytes) = 0;
  // Makes everything durable and visible at once. kFailedPrecondition if tensors are missing.
  virtual Status Commit() = 0;
};

}  // namespace ulmus::checkpoint
