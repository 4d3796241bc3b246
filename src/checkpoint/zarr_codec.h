// Bytes of a chunk: its codecs in both directions, and the table of a shard. Whatever is decoded
// may come from outside: no length is trusted before it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "checkpoint/zarr_metadata.h"

namespace ulmus::checkpoint {

// Memory that is not cleared when it is made: chunks are written over anyway.
class ByteBuffer {
 public:
  // The first `size` bytes; grows without keeping the content.
  std::span<std::byte> Get(size_t size);
  size_t capacity() const { return capacity_; }

 private:
  std::unique_ptr<std::byte[]> data_;
  size_t capacity_ = 0;
};

// Bytes that EncodeChunk may need for `size` bytes.
int64_t MaxEncodedBytes(const ByteCodecs& codecs, int64_t size);
inline size_t EncodeRoom(const ByteCodecs& codecs, size_t size) {
  return size + sizeof(uint32_t) * codecs.size();
}
// The exact size if it depends on nothing but `size`: no compression.
bool HasFixedSize(const ByteCodecs& codecs);
int64_t FixedEncodedBytes(const ByteCodecs& codecs, int64_t size);

// The encoded form of the first `size` bytes of `in`; it lies in one of the buffers. A checksum is
// written behind the bytes in place: `in` needs EncodeRoom(codecs, size) bytes of capacity.
std::span<const std::byte> EncodeChunk(const ByteCodecs& codecs, ByteBuffer& in, size_t size,
                                       ByteBuffer& out);

// Decodes into `out`, whose size is what must come out. kDataLoss if it does not.
Status DecodeChunk(const ByteCodecs& codecs, std::span<const std::byte> encoded,
                   std::span<std::byte> out);

// kDataLoss unless `stored`, 4 bytes little-endian, is the CRC-32C of `content`.
Status CheckCrc(std::span<const std::byte> content, std::span<const std::byte> stored);

// --- The index of sharding_indexed: (offset, size) of each inner chunk, row-major

struct ShardEntry {
  uint64_t offset = kAbsent;
  uint64_t size = kAbsent;
  static constexpr uint64_t kAbsent = ~uint64_t{0};  // in both: all elements are the fill value
  bool absent() const { return offset == kAbsent && size == kAbsent; }
  friend bool operator==(const ShardEntry&, const ShardEntry&) = default;
};
static_assert(sizeof(ShardEntry) == 16);

// Size of the encoded index.
int64_t ShardIndexBytes(const ShardLayout& layout, int64_t num_chunks);
std::vector<std::byte> EncodeShardIndex(const ShardLayout& layout,
                                        std::span<const ShardEntry> entries);
// Checks the checksum and that every entry lies in a file of `file_bytes` outside the index.
Result<std::vector<ShardEntry>> DecodeShardIndex(const ShardLayout& layout,
                                                 std::span<const std::byte> encoded,
                                                 int64_t num_chunks, int64_t file_bytes);

}  // namespace ulmus::checkpoint
