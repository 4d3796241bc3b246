// zarr.json of a Zarr v3 array: what our checkpoints, Orbax, TensorStore and zarr-python write.
// Read strictly; what is not listed here is refused by name. docs/formats/checkpoint.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/shape.h"

namespace ulmus::checkpoint {

inline constexpr int64_t kMaxZarrJsonBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxRank = 16;
inline constexpr int64_t kMaxElements = int64_t{1} << 56;  // sizes in bytes fit int64
inline constexpr std::string_view kZarrJson = "zarr.json";

// Codecs from bytes to bytes, in the order of encoding.
struct ByteCodec {
  enum class Kind { kCrc32c, kZstd };
  Kind kind = Kind::kCrc32c;
  int level = 0;          // zstd
  bool checksum = false;  // zstd's own
  friend bool operator==(const ByteCodec&, const ByteCodec&) = default;
};

// The codec `bytes` (little-endian), then these.
using ByteCodecs = std::vector<ByteCodec>;

// sharding_indexed: a chunk file holds many inner chunks and a table of where they are.
struct ShardLayout {
  Shape inner_shape;                                               // divides the chunk shape
  ByteCodecs codecs;                                               // of an inner chunk
  ByteCodecs index_codecs = {{.kind = ByteCodec::Kind::kCrc32c}};  // without zstd: of known size
  bool index_at_end = true;
  friend bool operator==(const ShardLayout&, const ShardLayout&) = default;
};

struct ChunkKeys {
  bool v2 = false;  // "0/1" instead of "c/0/1"
  char separator = '/';
  friend bool operator==(const ChunkKeys&, const ChunkKeys&) = default;
};

struct ArrayMetadata {
  TensorType type;
  Shape chunk_shape;                  // same rank, sizes at least 1; may be larger than the array
  std::vector<std::byte> fill_value;  // one element, little-endian
  ChunkKeys keys;
  std::optional<ShardLayout> sharding;
  ByteCodecs codecs;  // without sharding: of a chunk
  friend bool operator==(const ArrayMetadata&, const ArrayMetadata&) = default;

  // Chunks along each axis; 0 where the array is empty.
  Shape GridShape() const;
  // "c/0/1".
  std::string ChunkKey(const Dims& chunk) const;
  // What is encoded in one piece: the inner chunk, or the chunk without sharding.
  const Shape& inner_shape() const { return sharding ? sharding->inner_shape : chunk_shape; }
};

// kInvalidArgument says which field is wrong; kUnimplemented names what is legal but not read.
Result<ArrayMetadata> ParseArrayMetadata(std::string_view text);
// The text that ParseArrayMetadata reads back, as TensorStore would write it.
std::string ArrayMetadataText(const ArrayMetadata& metadata);

// "float32"; the names of zarr.json.
std::string_view ZarrName(DType dtype);

}  // namespace ulmus::checkpoint
