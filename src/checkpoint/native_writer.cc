#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/atomic_directory.h"
#include "checkpoint/native.h"
#include "checkpoint/native_orbax.h"
#include "checkpoint/native_pipeline.h"

namespace ulmus::checkpoint {
namespace {

constexpr size_t kMaxNameBytes = 200;  // file systems take 255; object stores count whole paths

// What metadata and directories add to the tensors, for the estimate.
constexpr int64_t kOverheadPerTensorBytes = 16 << 10;

bool IsFixedName(std::string_view name) {
  return name == kManifestName || name == kTrainStateName || name == kSideFolder ||
         name == kZarrJson || name == "commit_success.txt" || name == "array_metadatas";
}

Status CheckBaseName(std::string_view name, std::string_view what) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+=@,:[]() ";
  if (name.empty() || name.size() > kMaxNameBytes || name[0] == '.' ||
      name.find_first_not_of(kAllowed) != std::string_view::npos)
    return InvalidArgumentError(
        "{} '{}': expected 1 to {} letters, digits or signs of ._-+=@,:[](), not starting with a "
        "dot",
        what, JsonExcerpt(Json(name), kMaxNameBytes + 2), kMaxNameBytes);
  return Status();
}

// A checkpoint copied in part, or one whose removal was cut off: arrays and fixed files, no
// manifest.
Result<bool> AreRemains(const Path& dst) {
  for (const std::string& name : TRY(ListDirectory(dst))) {
    if (IsFixedName(name) || name == kOrbaxTreeName || name == kOrbaxCheckpointName) continue;
    std::error_code error;
    if (!std::filesystem::is_directory(dst / name, error)) return false;
    for (const std::string& inner : TRY(ListDirectory(dst / name)))
      if (inner != kZarrJson && inner != "c") return false;
  }
  return true;
}

// Not every folder may be destroyed by a slip of the keyboard.
Status CheckReplaceable(const Path& dst) {
  if (!TRY(PathExists(dst)) || IsNativeCheckpoint(dst) || TRY(AreRemains(dst))) return Status();
  return FailedPreconditionError(
      "{}: is no checkpoint (it has no {}), so it is not replaced; remove it yourself or choose "
      "another name",
      dst, kManifestName);
}

// One array: its metadata and which of its chunks have been started.
struct OpenArray {
  TensorInfo info;
  ArrayMetadata metadata;
  bool started = false;
  std::vector<bool> chunks;
};

}  // namespace

Status CheckTensorName(std::string_view name) {
  TRY(CheckBaseName(name, "tensor name"));
  if (name[0] == '_' || IsFixedName(name))
    return InvalidArgumentError("tensor name '{}' is taken by a file of the checkpoint", name);
  return Status();
}

struct NativeWriter::Impl {
  Impl(AtomicDirectory temporary, NativeWriterOptions writer_options, int64_t expected_bytes)
      : options(writer_options),
        directory(std::move(temporary)),
        store(directory.temp(), {.sync = writer_options.sync, .expected_bytes = expected_bytes}) {}

  Status WriteFile(const std::string& key, std::string_view text);
  void Record(const std::string& key, const ManifestFile& file);
  ArrayMetadata MetadataOf(const TensorInfo& tensor, const Shape& chunk_shape) const;
  Result<OpenArray*> StartChunk(const std::string& tensor, const Shape& chunk_shape,
                                const Dims& chunk);
  Status CheckComplete();

  const NativeWriterOptions options;
  AtomicDirectory directory;
  LocalWriteStore store;
  std::vector<TensorInfo> tensors;  // sorted by name
  std::mutex mutex;                 // guards arrays and manifest
  std::map<std::string, OpenArray, std::less<>> arrays;
  Manifest manifest;
  std::unique_ptr<ChunkPipeline> pipeline;  // its threads use all of the above
  std::unique_ptr<ChunkStream> current;     // of Begin and Append
  std::string current_name;
};

namespace {

class Stream : public NativeWriter::ChunkStream {
 public:
  Stream(ChunkPipeline& pipeline, const ArrayMetadata& metadata, std::string name,
         std::shared_ptr<ChunkPipeline::File> file, InnerChunks chunks)
      : pipeline_(pipeline),
        metadata_(metadata),
        name_(std::move(name)),
        file_(std::move(file)),
        chunks_(std::move(chunks)),
        rest_bytes_(chunks_.clipped_chunk().num_elements() * SizeBytes(metadata.type.dtype)) {}

  int64_t rest_bytes() const { return rest_bytes_; }

  Status Append(std::span<const std::byte> bytes) override {
    if (static_cast<int64_t>(bytes.size()) > rest_bytes_)
      return InvalidArgumentError("{}: {} bytes more than {} holds", name_,
                                  static_cast<int64_t>(bytes.size()) - rest_bytes_,
                                  metadata_.type.ToString());
    rest_bytes_ -= static_cast<int64_t>(bytes.size());
    while (!bytes.empty()) {
      if (buffers_ == nullptr) TRY(StartInner());
      const size_t count = std::min(bytes.size(), target_.size());
      std::memcpy(target_.data(), bytes.data(), count);
      target_ = target_.subspan(count);
      bytes = bytes.subspan(count);
      if (target_.empty()) TRY(pipeline_.Submit(file_, std::move(inner_), std::move(buffers_)));
    }
    if (rest_bytes_ == 0) TRY(pipeline_.Finish(file_));
    return Status();
  }

 private:
  Status StartInner() {
    std::optional<InnerChunk> inner = chunks_.Next();
    CHECK(inner.has_value(), "{}: more bytes than inner chunks", name_);
    inner_ = std::move(*inner);
    buffers_ = pipeline_.Take(metadata_, inner_.clipped);
    if (buffers_ == nullptr) return pipeline_.status();
    target_ = buffers_->raw.Get(
        static_cast<size_t>(inner_.clipped.num_elements() * SizeBytes(metadata_.type.dtype)));
    return Status();
  }

  ChunkPipeline& pipeline_;
  const ArrayMetadata& metadata_;
  const std::string name_;
  std::shared_ptr<ChunkPipeline::File> file_;
  InnerChunks chunks_;
  int64_t rest_bytes_;
  InnerChunk inner_;
  std::unique_ptr<ChunkBuffers> buffers_;  // of inner_
  std::span<std::byte> target_;            // what inner_ still lacks
};

}  // namespace

// --- Impl

void NativeWriter::Impl::Record(const std::string& key, const ManifestFile& file) {
  std::lock_guard lock(mutex);
  CHECK(manifest.files.emplace(key, file).second, "{} written twice", key);
}

Status NativeWriter::Impl::WriteFile(const std::string& key, std::string_view text) {
  TRY(store.WriteText(key, text));
  Record(key, {.size_bytes = static_cast<int64_t>(text.size()), .hash = Xxh3Wide(text)});
  return Status();
}

ArrayMetadata NativeWriter::Impl::MetadataOf(const TensorInfo& tensor,
                                             const Shape& chunk_shape) const {
  ArrayMetadata metadata;
  metadata.type = tensor.type;
  const ChunkShapes shapes = ChooseChunkShapes(chunk_shape, tensor.type.dtype, kInnerChunkBytes,
                                               chunk_shape == tensor.type.shape);
  metadata.chunk_shape = shapes.chunk;
  metadata.fill_value.resize(static_cast<size_t>(SizeBytes(tensor.type.dtype)));
  ShardLayout layout;
  layout.inner_shape = shapes.inner;
  if (options.zstd_level)
    layout.codecs.push_back({.kind = ByteCodec::Kind::kZstd, .level = *options.zstd_level});
  layout.codecs.push_back({.kind = ByteCodec::Kind::kCrc32c});
  metadata.sharding = std::move(layout);
  CHECK(IsStreamable(metadata), "inner chunks {} of {}", shapes.inner.ToString(),
        shapes.chunk.ToString());
  return metadata;
}

// Finds the array, writes its metadata the first time, and marks the chunk as started.
Result<OpenArray*> NativeWriter::Impl::StartChunk(const std::string& tensor,
                                                  const Shape& chunk_shape, const Dims& chunk) {
  OpenArray* array = nullptr;
  bool first = false;
  {
    std::lock_guard lock(mutex);
    const auto it = arrays.find(tensor);
    if (it == arrays.end())
      return InvalidArgumentError("{}: not among the tensors this checkpoint was made for", tensor);
    array = &it->second;
    CHECK(chunk_shape.rank() == array->info.type.shape.rank() &&
              chunk.size() == chunk_shape.dims().size(),
          "{}: chunk {} of shape {}", tensor, Shape(chunk).ToString(), chunk_shape.ToString());
    const ArrayMetadata metadata = MetadataOf(array->info, chunk_shape);
    first = !std::exchange(array->started, true);
    if (first) {
      array->metadata = metadata;
      array->chunks.resize(static_cast<size_t>(metadata.GridShape().num_elements()));
    }
    if (array->metadata != metadata)
      return InvalidArgumentError("{}: chunks of {}, but of {} before", tensor,
                                  chunk_shape.ToString(), array->metadata.chunk_shape.ToString());
    if (!array->chunks.empty()) {
      const Dims strides = metadata.GridShape().Strides();
      int64_t position = 0;
      for (size_t axis = 0; axis < chunk.size(); ++axis) position += chunk[axis] * strides[axis];
      CHECK(position >= 0 && position < static_cast<int64_t>(array->chunks.size()),
            "{}: chunk {} of the grid {}", tensor, Shape(chunk).ToString(),
            metadata.GridShape().ToString());
      std::vector<bool>::reference started = array->chunks[static_cast<size_t>(position)];
      if (started)
        return InvalidArgumentError("{}: chunk {} is written twice", tensor,
                                    Shape(chunk).ToString());
      started = true;
    }
  }
  if (first)
    TRY(WriteFile(fmt::format("{}/{}", tensor, kZarrJson), ArrayMetadataText(array->metadata)));
  return array;
}

Status NativeWriter::Impl::CheckComplete() {
  std::lock_guard lock(mutex);
  for (const auto& [name, array] : arrays) {
    const auto missing = std::ranges::count(array.chunks, false);
    if (!array.started || missing != 0)
      return FailedPreconditionError("{}: {} of its {} chunks were not written before the commit",
                                     name, array.started ? missing : 1,
                                     array.started ? array.chunks.size() : 1);
  }
  return Status();
}

// --- NativeWriter

NativeWriter::NativeWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NativeWriter::~NativeWriter() = default;

Result<std::unique_ptr<NativeWriter>> NativeWriter::Create(const Path& dst,
                                                           std::vector<TensorInfo> tensors,
                                                           NativeWriterOptions options) {
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  int64_t expected_bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TRY(CheckTensorName(tensors[i].name));
    if (i > 0 && tensors[i].name == tensors[i - 1].name)
      return InvalidArgumentError("tensor '{}' is named twice", tensors[i].name);
    if (tensors[i].type.shape.rank() > kMaxRank)
      return InvalidArgumentError("tensor '{}': {} has more than {} axes", tensors[i].name,
                                  tensors[i].type.ToString(), kMaxRank);
    expected_bytes += tensors[i].type.size_bytes() + kOverheadPerTensorBytes;
  }
  if (options.overwrite) TRY(CheckReplaceable(dst));
  AtomicDirectory directory = TRY(AtomicDirectory::Create(dst, options.overwrite));
  const int64_t free_bytes = TRY(FreeDiskBytes(directory.temp()));
  // Compressed, it may fit: then the disk itself says when it is full.
  if (!options.zstd_level && expected_bytes > free_bytes)
    return ResourceExhaustedError(
        "{}: not enough space on the disk: {} bytes needed, {} free; free some, or choose another "
        "disk",
        dst, expected_bytes, free_bytes);
  auto impl = std::make_unique<Impl>(std::move(directory), options, expected_bytes);
  impl->manifest.step = options.step;
  for (const TensorInfo& tensor : tensors)
    impl->arrays.emplace(tensor.name, OpenArray{.info = tensor, .metadata = {}, .chunks = {}});
  impl->tensors = std::move(tensors);
  impl->pipeline = std::make_unique<ChunkPipeline>(
      options.threads, options.memory_bytes,
      [raw = impl.get()](const std::string& key, const ManifestFile& file) {
        raw->Record(key, file);
      });
  return std::unique_ptr<NativeWriter>(new NativeWriter(std::move(impl)));
}

Result<std::unique_ptr<NativeWriter::ChunkStream>> NativeWriter::BeginChunk(
    const std::string& tensor, const Shape& chunk_shape, const Dims& chunk) {
  TRY(impl_->pipeline->status());
  const OpenArray* array = TRY(impl_->StartChunk(tensor, chunk_shape, chunk));
  InnerChunks chunks(array->metadata, chunk);
  std::string key = fmt::format("{}/{}", tensor, array->metadata.ChunkKey(chunk));
  std::unique_ptr<ObjectWriter> object = TRY(impl_->store.Create(key));
  auto file = impl_->pipeline->AddFile(array->metadata, std::move(key), chunks.table_size(),
                                       std::move(object));
  return std::make_unique<Stream>(*impl_->pipeline, array->metadata, tensor, std::move(file),
                                  std::move(chunks));
}

Status NativeWriter::Begin(const TensorInfo& tensor) {
  if (impl_->current != nullptr) {
    const int64_t rest = static_cast<const Stream&>(*impl_->current).rest_bytes();
    if (rest != 0)
      return FailedPreconditionError("{}: {} bytes are missing", impl_->current_name, rest);
    impl_->current.reset();
  }
  const auto it = impl_->arrays.find(tensor.name);
  if (it != impl_->arrays.end() && it->second.info.type != tensor.type)
    return InvalidArgumentError("{}: {}, announced as {}", tensor.name, tensor.type.ToString(),
                                it->second.info.type.ToString());
  const Dims origin(tensor.type.shape.dims().size(), 0);
  if (tensor.type.shape.num_elements() == 0) {
    TRY(impl_->StartChunk(tensor.name, tensor.type.shape, origin));
    return Status();
  }
  impl_->current = TRY(BeginChunk(tensor.name, tensor.type.shape, origin));
  impl_->current_name = tensor.name;
  return Status();
}

Status NativeWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return impl_->pipeline->status();
  if (impl_->current == nullptr)
    return FailedPreconditionError("{} bytes behind the end of a tensor", bytes.size());
  return impl_->current->Append(bytes);
}

Status NativeWriter::AddSideFile(std::string_view name, std::string_view bytes) {
  TRY(CheckBaseName(name, "side file"));
  if (static_cast<int64_t>(bytes.size()) > kMaxSideFileBytes)
    return InvalidArgumentError("side file {}: {} bytes, more than the limit of {}", name,
                                bytes.size(), kMaxSideFileBytes);
  return impl_->WriteFile(fmt::format("{}/{}", kSideFolder, name), bytes);
}

Status NativeWriter::SetTrainState(std::string_view json) {
  if (static_cast<int64_t>(json.size()) > kMaxTrainStateBytes)
    return InvalidArgumentError("{}: {} bytes, more than the limit of {}", kTrainStateName,
                                json.size(), kMaxTrainStateBytes);
  const Result<Json> value = ParseJson(json, {.max_bytes = kMaxTrainStateBytes});
  if (!value.ok()) return value.error().WithContext(kTrainStateName);
  if (!value->is_object())
    return InvalidArgumentError("{}: {}, expected an object", kTrainStateName, JsonExcerpt(*value));
  return impl_->WriteFile(std::string(kTrainStateName), json);
}

Status NativeWriter::Commit() {
  if (impl_->current != nullptr) {
    const int64_t rest = static_cast<const Stream&>(*impl_->current).rest_bytes();
    if (rest != 0)
      return FailedPreconditionError("{}: {} bytes are missing", impl_->current_name, rest);
  }
  TRY(impl_->CheckComplete());
  TRY(impl_->pipeline->Wait());
  TRY(impl_->WriteFile(std::string(kOrbaxTreeName), OrbaxTreeText(impl_->tensors)));
  TRY(impl_->WriteFile(std::string(kOrbaxCheckpointName), OrbaxCheckpointText()));
  TRY(impl_->store.WriteText(std::string(kManifestName), ManifestText(impl_->manifest)));
  TRY(impl_->store.Sync());
  return impl_->directory.Commit();
}

}  // namespace ulmus::checkpoint
