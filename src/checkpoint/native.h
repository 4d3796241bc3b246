// Our checkpoint directory: Zarr v3 arrays named as the tensors, train_state.json, side files, the
// metadata Orbax wants, and the manifest whose presence is the commit. docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint/zarr.h"

namespace ulmus::checkpoint {

inline constexpr std::string_view kTrainStateName = "train_state.json";
inline constexpr std::string_view kSideFolder = "hf";  // side files: those of a Hugging Face folder
inline constexpr int64_t kMaxTrainStateBytes = int64_t{64} << 20;
inline constexpr int64_t kInnerChunkBytes = int64_t{4} << 20;

// kInvalidArgument unless `name` can be a folder of a checkpoint beside the fixed names.
Status CheckTensorName(std::string_view name);

struct NativeWriterOptions {
  int64_t step = 0;  // completed optimizer steps
  // None: docs/decisions/0005-checkpoint-codec.md.
  std::optional<int> zstd_level = std::nullopt;
  int64_t memory_bytes = int64_t{256} << 20;  // of all buffers
  int threads = 2;                            // that check, compress and write
  bool overwrite = false;                     // an older checkpoint of the same name, at the commit
  bool sync = true;                           // off in tests only
};

// Writes a checkpoint under a temporary name beside `dst`; Commit() makes it durable and renames
// it. Whatever dies when, `dst` is the old checkpoint, or the new one, or nothing. The functions of
// TensorSink are for one thread; ChunkStreams may be used by many at once.
class NativeWriter : public TensorSink {
 public:
  // kAlreadyExists if there is something at `dst` (unless it may be
  // overwritten: then kFailedPrecondition if it is neither a checkpoint nor what is left of one);
  // kResourceExhausted with needed and free bytes if the disk cannot hold the tensors. Removes what
  // writers that died left behind.
  static Result<std::unique_ptr<NativeWriter>> Create(const Path& dst,
                                                      std::vector<TensorInfo> tensors,
                                                      NativeWriterOptions options = {});
  ~NativeWriter() override;

  Status Begin(const TensorInfo& tensor) override;
  Status Append(std::span<const std::byte> bytes) override;
  Status AddSideFile(std::string_view name, std::string_view bytes) override;
  Status Commit() override;

  // A JSON object, opaque here.
  Status SetTrainState(std::string_view json);

  // One chunk of a tensor that several writers share: its elements inside the tensor in row-major
  // order. One thread per stream.
  class ChunkStream {
   public:
    virtual ~ChunkStream() = default;
    virtual Status Append(std::span<const std::byte> bytes) = 0;
  };
  // All streams of a tensor must name the same chunk shape; every chunk of the grid must have been
  // written before Commit(). Any thread.
  Result<std::unique_ptr<ChunkStream>> BeginChunk(const std::string& tensor,
                                                  const Shape& chunk_shape, const Dims& chunk);

  struct Impl;

 private:
  explicit NativeWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Any thread.
class NativeReader : public TensorSource {
 public:
  // kNotFound if there is nothing at `path`; kDataLoss, with what is wrong and what to do, unless
  // the manifest holds and every file it names is there with its size. Content is checked when it
  // is read, unless `verify` asks for all of it at once.
  static Result<std::unique_ptr<NativeReader>> Open(const Path& path,
                                                    const VerifyOptions& verify = {.full = false});

  std::span<const TensorInfo> tensors() const override { return tensors_; }
  Status Read(int64_t index, int64_t first, std::span<std::byte> out) const override;
  Status ReadBlock(int64_t index, const Dims& offsets, const Shape& block,
                   std::span<std::byte> out) const override;
  std::vector<std::string> SideFiles() const override;
  Result<std::string> LoadSideFile(std::string_view name) const override;

  int64_t step() const { return manifest_.step; }
  const Manifest& manifest() const { return manifest_; }
  const ArrayMetadata& metadata(int64_t index) const {
    return arrays_[static_cast<size_t>(index)].metadata();
  }
  // kNotFound if none was set.
  Result<std::string> LoadTrainState() const;

 private:
  explicit NativeReader(Path path) : path_(std::move(path)), store_(path_) {}
  Status OpenArrays();
  // The content of a file, held against the manifest.
  Result<std::string> LoadChecked(const std::string& key, int64_t limit_bytes) const;

  Path path_;
  LocalReadStore store_;
  mutable ReadCache cache_;
  Manifest manifest_;
  std::vector<TensorInfo> tensors_;
  std::vector<ArrayReader> arrays_;
};

// True if `path` looks like one of our checkpoints, whole or not: it has a manifest.
bool IsNativeCheckpoint(const Path& path);

struct VerifyReport {
  int64_t step = 0;
  int64_t files = 0;
  int64_t bytes = 0;
  std::vector<Damage> damaged;
  bool holds() const { return damaged.empty(); }
};
// Every damaged, missing and extra file by name. A damaged manifest is damage, too; an error only
// if `path` cannot be read.
Result<VerifyReport> VerifyCheckpoint(const Path& path, const VerifyOptions& options = {});

}  // namespace ulmus::checkpoint
