#include "checkpoint/native_pipeline.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/thread.h"

namespace ulmus::checkpoint {
namespace {

constexpr int64_t kMaxWaitingJobs = 256;

const ByteCodecs& CodecsOf(const ArrayMetadata& metadata) {
  return metadata.sharding ? metadata.sharding->codecs : metadata.codecs;
}

int64_t InnerBytes(const ArrayMetadata& metadata) {
  return metadata.inner_shape().num_elements() * SizeBytes(metadata.type.dtype);
}

}  // namespace

// An inner chunk behind the codecs, waiting for its turn in the file. Without buffers it ends it.
struct ChunkPipeline::Encoded {
  int64_t index = 0;
  std::span<const std::byte> bytes;
  std::unique_ptr<ChunkBuffers> buffers;
};

class ChunkPipeline::File {
 public:
  File(const ArrayMetadata& array, std::string file_key, int64_t table_size,
       std::unique_ptr<ObjectWriter> object)
      : metadata(array), key(std::move(file_key)), writer(array, table_size, std::move(object)) {}

  const ArrayMetadata& metadata;
  const std::string key;
  int64_t submitted = 0;  // touched by the submitting thread only
  std::mutex mutex;       // guards everything below but the writer
  std::map<int64_t, Encoded> ready;
  int64_t next = 0;
  bool writing = false;    // some thread is in the writer
  ChunkFileWriter writer;  // used by the thread that set `writing`
};

ChunkPipeline::ChunkPipeline(int threads, int64_t memory_bytes, FileDone done)
    : memory_bytes_(memory_bytes), done_(std::move(done)), jobs_(kMaxWaitingJobs) {
  CHECK(threads > 0, "{} threads", threads);
  for (int i = 0; i < threads; ++i)
    threads_.push_back(StartThread(fmt::format("checkpoint {}", i), [this] { Run(); }));
}

ChunkPipeline::~ChunkPipeline() {
  Fail(CancelledError("the checkpoint was given up"));
  jobs_.Close();
}

std::shared_ptr<ChunkPipeline::File> ChunkPipeline::AddFile(const ArrayMetadata& metadata,
                                                            std::string key, int64_t table_size,
                                                            std::unique_ptr<ObjectWriter> object) {
  std::lock_guard lock(mutex_);
  ++open_files_;
  return std::make_shared<File>(metadata, std::move(key), table_size, std::move(object));
}

std::unique_ptr<ChunkBuffers> ChunkPipeline::Take(const ArrayMetadata& metadata,
                                                  const Shape& clipped) {
  const ByteCodecs& codecs = CodecsOf(metadata);
  const auto raw =
      static_cast<int64_t>(EncodeRoom(codecs, static_cast<size_t>(InnerBytes(metadata))));
  // Compression and padding need a second buffer.
  const bool one = HasFixedSize(codecs) && clipped == metadata.inner_shape();
  const int64_t bytes = raw + (one ? 0 : MaxEncodedBytes(codecs, InnerBytes(metadata)));
  std::unique_ptr<ChunkBuffers> buffers;
  {
    std::unique_lock lock(mutex_);
    // One chunk larger than the whole budget goes alone.
    changed_.wait(lock, [&] {
      return !status_.ok() || reserved_bytes_ == 0 || reserved_bytes_ + bytes <= memory_bytes_;
    });
    if (!status_.ok()) return nullptr;
    const auto fits = std::ranges::find_if(spare_, [&](const auto& spare) {
      return spare->raw.capacity() >= static_cast<size_t>(raw);
    });
    if (fits != spare_.end()) {
      buffers = std::move(*fits);
      spare_.erase(fits);
    } else {
      buffers = std::make_unique<ChunkBuffers>();
    }
    buffers->reserved_bytes = std::max(bytes, buffers->capacity_bytes());
    reserved_bytes_ += buffers->reserved_bytes;
    TrimSpare();
  }
  buffers->raw.Get(static_cast<size_t>(raw));
  return buffers;
}

void ChunkPipeline::TrimSpare() {
  int64_t total = reserved_bytes_;
  std::erase_if(spare_, [&](const auto& spare) {
    total += spare->capacity_bytes();
    return total > memory_bytes_;
  });
}

void ChunkPipeline::Return(std::unique_ptr<ChunkBuffers> buffers) {
  {
    std::lock_guard lock(mutex_);
    reserved_bytes_ -= buffers->reserved_bytes;
    spare_.push_back(std::move(buffers));  // fresh memory costs a page fault every 4 KiB
    TrimSpare();
  }
  changed_.notify_all();
}

Status ChunkPipeline::Submit(const std::shared_ptr<File>& file, InnerChunk chunk,
                             std::unique_ptr<ChunkBuffers> buffers) {
  const int64_t turn = file->submitted++;
  jobs_.Push(Job{file, turn, std::move(chunk), std::move(buffers)});
  return status();
}

Status ChunkPipeline::Finish(const std::shared_ptr<File>& file) {
  return Submit(file, {}, nullptr);
}

Status ChunkPipeline::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !status_.ok() || open_files_ == 0; });
  return status_;
}

Status ChunkPipeline::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

void ChunkPipeline::Fail(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  changed_.notify_all();
}

void ChunkPipeline::Run() {
  while (std::optional<Job> job = jobs_.Pop()) {
    if (!status().ok()) {
      if (job->buffers) Return(std::move(job->buffers));
      continue;
    }
    Encode(*job);
    WriteReady(*job->file);
  }
}

void ChunkPipeline::Encode(Job& job) {
  const ArrayMetadata& metadata = job.file->metadata;
  Encoded encoded{.index = job.chunk.index, .bytes = {}, .buffers = std::move(job.buffers)};
  if (encoded.buffers) {
    ChunkBuffers& buffers = *encoded.buffers;
    const ByteCodecs& codecs = CodecsOf(metadata);
    const auto inner_bytes = static_cast<size_t>(InnerBytes(metadata));
    if (job.chunk.clipped != metadata.inner_shape()) {
      const auto bytes =
          static_cast<size_t>(job.chunk.clipped.num_elements() * SizeBytes(metadata.type.dtype));
      const std::span<std::byte> padded = buffers.encoded.Get(EncodeRoom(codecs, inner_bytes));
      PadInnerChunk(metadata, job.chunk.clipped, buffers.raw.Get(bytes), padded.first(inner_bytes));
      std::swap(buffers.raw, buffers.encoded);
    }
    encoded.bytes = EncodeChunk(codecs, buffers.raw, inner_bytes, buffers.encoded);
  }
  std::lock_guard lock(job.file->mutex);
  job.file->ready.emplace(job.turn, std::move(encoded));
}

// Writes what is next in the file, unless another thread is at it: that one goes on with ours.
void ChunkPipeline::WriteReady(File& file) {
  std::unique_lock lock(file.mutex);
  if (file.writing) return;
  file.writing = true;
  while (true) {
    const auto next = file.ready.find(file.next);
    if (next == file.ready.end()) break;
    Encoded encoded = std::move(next->second);
    file.ready.erase(next);
    ++file.next;
    lock.unlock();
    WriteOne(file, encoded);
    lock.lock();
  }
  file.writing = false;
}

void ChunkPipeline::WriteOne(File& file, Encoded& encoded) {
  if (encoded.buffers) {
    if (Status status = file.writer.Append(encoded.index, encoded.bytes); !status.ok())
      Fail(status);
    Return(std::move(encoded.buffers));
    return;
  }
  if (Status status = file.writer.Finish(); !status.ok()) return Fail(status);
  done_(file.key, {.size_bytes = file.writer.size_bytes(), .hash = file.writer.hash()});
  {
    std::lock_guard lock(mutex_);
    --open_files_;
  }
  changed_.notify_all();
}

}  // namespace ulmus::checkpoint
