// Zarr v3 arrays: read any block or range, written chunk by chunk in pieces of a few MiB. Metadata
// is in zarr_metadata.h, the bytes of a chunk in zarr_codec.h, the place they live in zarr_store.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "checkpoint/zarr_codec.h"
#include "checkpoint/zarr_metadata.h"
#include "checkpoint/zarr_store.h"

namespace ulmus::checkpoint {

// --- Reading

// What the readers of one store keep between calls: open chunk files with their tables, and inner
// chunks of which only a part was asked for. Bounded. Any thread.
class ReadCache {
 public:
  explicit ReadCache(int64_t limit_bytes = int64_t{64} << 20) : limit_bytes_(limit_bytes) {}

  struct OpenChunk {
    std::unique_ptr<ObjectReader> object;  // null: there is no such chunk
    std::vector<ShardEntry> entries;       // empty without sharding
  };
  std::shared_ptr<const OpenChunk> FindChunk(const std::string& key);
  void AddChunk(const std::string& key, std::shared_ptr<const OpenChunk> chunk);
  std::shared_ptr<const std::vector<std::byte>> FindBytes(const std::string& key);
  void AddBytes(const std::string& key, std::shared_ptr<const std::vector<std::byte>> bytes);

 private:
  // Latest use first. Few entries: searched one by one.
  template <class T>
  using Entries = std::list<std::pair<std::string, std::shared_ptr<const T>>>;
  template <class T>
  std::shared_ptr<const T> Find(Entries<T>& entries, const std::string& key);
  template <class T, class Size>
  void Add(Entries<T>& entries, const std::string& key, std::shared_ptr<const T> value, Size size);

  const int64_t limit_bytes_;
  std::mutex mutex_;  // guards the entries
  Entries<OpenChunk> chunks_;
  Entries<std::vector<std::byte>> bytes_;
};

struct ArrayReadOptions {
  // Zarr lets a chunk that holds nothing but the fill value be left out. Our writers never do.
  bool absent_is_damage = true;
  // The largest inner chunk that is decoded in memory.
  int64_t max_chunk_bytes = int64_t{4} << 30;
};

// Any thread. The store and cache must outlive it.
class ArrayReader {
 public:
  // Reads and checks `<name>/zarr.json`. kDataLoss if it is no zarr.json, kUnimplemented if it is
  // one that we do not read.
  static Result<ArrayReader> Open(const ReadStore& store, ReadCache& cache, std::string name,
                                  ArrayReadOptions options = {});
  // The same from the text of zarr.json.
  static Result<ArrayReader> Parse(const ReadStore& store, ReadCache& cache, std::string name,
                                   std::string_view zarr_json, ArrayReadOptions options = {});

  const ArrayMetadata& metadata() const { return metadata_; }
  const TensorType& type() const { return metadata_.type; }

  // The block of shape `block` at `offsets`, inside the array (CHECK), row-major.
  Status ReadBlock(const Dims& offsets, const Shape& block, std::span<std::byte> out) const;
  // Elements from `first` on in row-major order, inside the array (CHECK).
  Status ReadRange(int64_t first, std::span<std::byte> out) const;

 private:
  struct Target;
  ArrayReader(const ReadStore& store, ReadCache& cache, std::string name, ArrayReadOptions options)
      : store_(&store), cache_(&cache), name_(std::move(name)), options_(options) {}
  Result<std::shared_ptr<const ReadCache::OpenChunk>> OpenChunk(const std::string& key) const;
  Status ReadChunk(const Dims& chunk, const Target& target) const;
  Status ReadInner(const ReadCache::OpenChunk& chunk, const std::string& key, int64_t index,
                   const Dims& origin, const Target& target) const;
  Status FillAbsent(const std::string& key, const Dims& origin, const Shape& shape,
                    const Target& target) const;

  const ReadStore* store_;
  ReadCache* cache_;
  std::string name_;
  ArrayReadOptions options_;
  ArrayMetadata metadata_;
};

// --- Writing

// Inner chunks of about `target_bytes` that follow one another in the chunk's row-major order, so
// that a chunk can be written from a stream. If `single` (the chunk covers the array's first axis
// that is cut), the chunk shape may be rounded up to a whole number of inner chunks.
struct ChunkShapes {
  Shape chunk;
  Shape inner;
};
ChunkShapes ChooseChunkShapes(const Shape& chunk, DType dtype, int64_t target_bytes, bool single);

// True if the inner chunks of a chunk follow one another in its row-major order.
bool IsStreamable(const ArrayMetadata& metadata);

// One inner chunk of a chunk: its position in the table, and the part that lies in the array.
struct InnerChunk {
  int64_t index = 0;
  Shape clipped;
};

// Walks over the inner chunks of a chunk that have elements in the array, in row-major order.
class InnerChunks {
 public:
  InnerChunks(const ArrayMetadata& metadata, Dims chunk);
  // nullopt after the last.
  std::optional<InnerChunk> Next();
  // Inner chunks in the chunk's table, absent ones included.
  int64_t table_size() const { return counts_.num_elements(); }
  // The part of the chunk that lies in the array.
  Shape clipped_chunk() const;

 private:
  const ArrayMetadata& metadata_;
  Dims chunk_;
  Shape counts_;  // inner chunks along each axis
  int64_t next_ = 0;
};

// Spreads the elements of a clipped inner chunk to the full shape; the rest is the fill value.
void PadInnerChunk(const ArrayMetadata& metadata, const Shape& clipped,
                   std::span<const std::byte> in, std::span<std::byte> out);

// Writes the file of one chunk from encoded inner chunks, with its size and checksum. One thread at
// a time. The metadata must outlive it.
class ChunkFileWriter {
 public:
  ChunkFileWriter(const ArrayMetadata& metadata, int64_t table_size,
                  std::unique_ptr<ObjectWriter> object);
  Status Append(int64_t index, std::span<const std::byte> encoded);
  // Writes the table. After it the object is complete.
  Status Finish();

  int64_t size_bytes() const { return size_bytes_; }
  Hash128 hash() const { return hash_.wide_digest(); }

 private:
  Status Write(std::span<const std::byte> bytes);

  const ArrayMetadata& metadata_;
  std::unique_ptr<ObjectWriter> object_;
  std::vector<ShardEntry> entries_;
  Xxh3Stream hash_;
  int64_t size_bytes_ = 0;
};

}  // namespace ulmus::checkpoint
