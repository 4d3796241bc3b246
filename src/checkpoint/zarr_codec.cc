#include "checkpoint/zarr_codec.h"

#include <zstd.h>

#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace ulmus::checkpoint {
namespace {

constexpr size_t kCrcBytes = sizeof(uint32_t);

using Kind = ByteCodec::Kind;

// One context per thread: making one costs more than compressing a small chunk.
struct ZstdContexts {
  ZSTD_CCtx* compress = ZSTD_createCCtx();
  ZSTD_DCtx* decompress = ZSTD_createDCtx();
  ~ZstdContexts() {
    ZSTD_freeCCtx(compress);
    ZSTD_freeDCtx(decompress);
  }
};

ZstdContexts& ThreadContexts() {
  thread_local ZstdContexts contexts;
  return contexts;
}

size_t Compress(const ByteCodec& codec, std::span<const std::byte> in, std::span<std::byte> out) {
  ZSTD_CCtx* context = ThreadContexts().compress;
  ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, codec.level);
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, codec.checksum ? 1 : 0);
  const size_t size = ZSTD_compress2(context, out.data(), out.size(), in.data(), in.size());
  CHECK(!ZSTD_isError(size), "zstd of {} bytes: {}", in.size(), ZSTD_getErrorName(size));
  return size;
}

// Frames until the input ends; what comes out must fill `out`.
Status Decompress(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t size = ZSTD_decompressDCtx(ThreadContexts().decompress, out.data(), out.size(),
                                          in.data(), in.size());
  if (ZSTD_isError(size))
    return DataLossError("zstd: {} ({} bytes encoded, {} expected decoded)",
                         ZSTD_getErrorName(size), in.size(), out.size());
  if (size != out.size())
    return DataLossError("zstd: {} bytes decoded, {} expected", size, out.size());
  return Status();
}

Result<std::span<const std::byte>> StripCrc(std::span<const std::byte> bytes) {
  if (bytes.size() < kCrcBytes)
    return DataLossError("crc32c: {} bytes, shorter than the checksum", bytes.size());
  const std::span<const std::byte> content = bytes.first(bytes.size() - kCrcBytes);
  TRY(CheckCrc(content, bytes.subspan(content.size())));
  return content;
}

}  // namespace

Status CheckCrc(std::span<const std::byte> content, std::span<const std::byte> stored) {
  CHECK(stored.size() == kCrcBytes, "checksum of {} bytes", stored.size());
  uint32_t expected = 0;
  std::memcpy(&expected, stored.data(), kCrcBytes);
  const uint32_t found = Crc32c(content);
  if (found == expected) return Status();
  return DataLossError(
      "crc32c: {:08x} over {} bytes, stored {:08x}; the file is damaged, use another copy", found,
      content.size(), expected);
}

std::span<std::byte> ByteBuffer::Get(size_t size) {
  if (size > capacity_) {
    data_.reset();  // never both at once
    data_ = std::make_unique_for_overwrite<std::byte[]>(size);
    capacity_ = size;
  }
  return {data_.get(), size};
}

int64_t MaxEncodedBytes(const ByteCodecs& codecs, int64_t size) {
  for (const ByteCodec& codec : codecs) {
    size = codec.kind == Kind::kCrc32c
               ? size + static_cast<int64_t>(kCrcBytes)
               : static_cast<int64_t>(ZSTD_compressBound(static_cast<size_t>(size)));
  }
  return size;
}

bool HasFixedSize(const ByteCodecs& codecs) {
  for (const ByteCodec& codec : codecs) {
    if (codec.kind != Kind::kCrc32c) return false;
  }
  return true;
}

int64_t FixedEncodedBytes(const ByteCodecs& codecs, int64_t size) {
  CHECK(HasFixedSize(codecs), "compressed size asked for");
  return MaxEncodedBytes(codecs, size);
}

std::span<const std::byte> EncodeChunk(const ByteCodecs& codecs, ByteBuffer& in, size_t size,
                                       ByteBuffer& out) {
  const auto room = static_cast<size_t>(MaxEncodedBytes(codecs, static_cast<int64_t>(size)));
  CHECK(in.capacity() >= EncodeRoom(codecs, size), "{} bytes of room for a chunk of {}",
        in.capacity(), size);
  ByteBuffer* from = &in;
  ByteBuffer* to = &out;
  for (const ByteCodec& codec : codecs) {
    const std::span<std::byte> bytes = from->Get(size);
    if (codec.kind == Kind::kCrc32c) {
      const uint32_t crc = Crc32c(bytes);
      std::memcpy(bytes.data() + size, &crc, kCrcBytes);
      size += kCrcBytes;
    } else {
      size = Compress(codec, bytes, to->Get(room));
      std::swap(from, to);
    }
  }
  return from->Get(size);
}

Status DecodeChunk(const ByteCodecs& codecs, std::span<const std::byte> encoded,
                   std::span<std::byte> out) {
  // Sizes before each codec are known as long as only checksums follow it; a codec under a
  // compression gets at most what the compression of `out` may need.
  std::span<const std::byte> bytes = encoded;
  ByteBuffer buffers[2];
  size_t turn = 0;
  for (size_t i = codecs.size(); i-- > 0;) {
    if (codecs[i].kind == Kind::kCrc32c) {
      bytes = TRY(StripCrc(bytes));
      continue;
    }
    const ByteCodecs before(codecs.begin(), codecs.begin() + static_cast<int64_t>(i));
    if (!HasFixedSize(before))
      return UnimplementedError("codecs: zstd after zstd is not supported");
    if (before.empty()) return Decompress(bytes, out);
    const auto size =
        static_cast<size_t>(FixedEncodedBytes(before, static_cast<int64_t>(out.size())));
    const std::span<std::byte> target = buffers[turn ^= 1].Get(size);
    TRY(Decompress(bytes, target));
    bytes = target;
  }
  if (bytes.size() != out.size())
    return DataLossError("{} bytes, {} expected", bytes.size(), out.size());
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size());
  return Status();
}

int64_t ShardIndexBytes(const ShardLayout& layout, int64_t num_chunks) {
  return FixedEncodedBytes(layout.index_codecs,
                           num_chunks * static_cast<int64_t>(sizeof(ShardEntry)));
}

std::vector<std::byte> EncodeShardIndex(const ShardLayout& layout,
                                        std::span<const ShardEntry> entries) {
  const std::span<const std::byte> bytes = std::as_bytes(entries);
  std::vector<std::byte> encoded(bytes.begin(), bytes.end());
  for (const ByteCodec& codec : layout.index_codecs) {
    CHECK(codec.kind == Kind::kCrc32c, "compressed index");
    const uint32_t crc = Crc32c(encoded);
    const std::span<const std::byte> crc_bytes = std::as_bytes(std::span(&crc, 1));
    encoded.insert(encoded.end(), crc_bytes.begin(), crc_bytes.end());
  }
  return encoded;
}

Result<std::vector<ShardEntry>> DecodeShardIndex(const ShardLayout& layout,
                                                 std::span<const std::byte> encoded,
                                                 int64_t num_chunks, int64_t file_bytes) {
  std::vector<ShardEntry> entries(static_cast<size_t>(num_chunks));
  if (Status status =
          DecodeChunk(layout.index_codecs, encoded, std::as_writable_bytes(std::span(entries)));
      !status.ok())
    return status.WithContext("shard index");
  const auto index_bytes = static_cast<uint64_t>(ShardIndexBytes(layout, num_chunks));
  const uint64_t begin = layout.index_at_end ? 0 : index_bytes;
  const uint64_t end = static_cast<uint64_t>(file_bytes) - (layout.index_at_end ? index_bytes : 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    const ShardEntry& entry = entries[i];
    if (entry.absent()) continue;
    if (entry.offset < begin || entry.offset > end || entry.size > end - entry.offset)
      return DataLossError("shard index: inner chunk {} at {} with {} bytes lies outside {}..{}", i,
                           entry.offset, entry.size, begin, end);
  }
  return entries;
}

}  // namespace ulmus::checkpoint
