// Threads that encode the inner chunks of many chunk files and write each file in order, within a
// fixed amount of memory. Used by the writer of checkpoints (native.h).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/zarr.h"

namespace ulmus::checkpoint {

// Buffers of one inner chunk on its way.
struct ChunkBuffers {
  ByteBuffer raw;
  ByteBuffer encoded;
  int64_t reserved_bytes = 0;
  int64_t capacity_bytes() const {
    return static_cast<int64_t>(raw.capacity() + encoded.capacity());
  }
};

class ChunkPipeline {
 public:
  // Called once per finished file, by one of the threads.
  using FileDone = std::function<void(const std::string& key, const ManifestFile& file)>;

  ChunkPipeline(int threads, int64_t memory_bytes, FileDone done);
  ~ChunkPipeline();  // drops what is not written yet

  class File;
  // `metadata` must outlive the pipeline.
  std::shared_ptr<File> AddFile(const ArrayMetadata& metadata, std::string key, int64_t table_size,
                                std::unique_ptr<ObjectWriter> object);
  // Waits for memory; nullptr after an error. raw has room for the chunk and its checksums.
  std::unique_ptr<ChunkBuffers> Take(const ArrayMetadata& metadata, const Shape& clipped);
  // Encodes and writes the elements in raw. Chunks of one file come from one thread, in order.
  Status Submit(const std::shared_ptr<File>& file, InnerChunk chunk,
                std::unique_ptr<ChunkBuffers> buffers);
  // No more chunks come: the file is finished behind the last one.
  Status Finish(const std::shared_ptr<File>& file);
  // Waits until all files are finished; the first error.
  Status Wait();
  // The first error so far.
  Status status() const;

 private:
  struct Job {
    std::shared_ptr<File> file;
    int64_t turn = 0;  // position among the chunks of the file
    InnerChunk chunk;
    std::unique_ptr<ChunkBuffers> buffers;  // null: the file ends
  };
  struct Encoded;
  void Run();
  void Encode(Job& job);
  void WriteReady(File& file);
  void WriteOne(File& file, Encoded& encoded);
  void TrimSpare();  // with mutex_ held
  void Return(std::unique_ptr<ChunkBuffers> buffers);
  void Fail(const Status& status);

  const int64_t memory_bytes_;
  const FileDone done_;
  BoundedQueue<Job> jobs_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  Status status_;
  int64_t reserved_bytes_ = 0;
  int64_t open_files_ = 0;
  std::vector<std::unique_ptr<ChunkBuffers>> spare_;
  std::vector<std::jthread> threads_;  // last: they use all of the above
};

}  // namespace ulmus::checkpoint
