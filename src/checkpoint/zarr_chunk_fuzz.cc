// Fuzzes the bytes of a chunk file. The first byte chooses codecs and place of the table; the
// checksum of the table is made to hold now and then, so that its checks are reached.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/hash.h"
#include "checkpoint/zarr.h"

namespace ulmus::checkpoint {
namespace {

class OneObject : public ReadStore {
 public:
  explicit OneObject(std::string bytes) : bytes_(std::move(bytes)) {}
  Result<std::unique_ptr<ObjectReader>> Open(const std::string&) const override {
    return std::make_unique<Reader>(bytes_);
  }
  std::string Describe(const std::string& key) const override { return key; }
  Result<std::map<std::string, int64_t>> List() const override {
    return UnimplementedError("not listed");
  }

 private:
  class Reader : public ObjectReader {
   public:
    explicit Reader(const std::string& bytes) : bytes_(bytes) {}
    int64_t size_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
    Status Read(int64_t offset, std::span<std::byte> out) const override {
      CHECK(offset >= 0 && offset <= size_bytes(), "read at {}", offset);
      const auto at = static_cast<size_t>(offset);
      if (out.size() > bytes_.size() - at) return DataLossError("cut short");
      if (!out.empty()) std::memcpy(out.data(), bytes_.data() + at, out.size());
      return Status();
    }

   private:
    const std::string& bytes_;
  };
  std::string bytes_;
};

ArrayMetadata MetadataFor(uint8_t choice) {
  constexpr ByteCodec kCrc{.kind = ByteCodec::Kind::kCrc32c};
  constexpr ByteCodec kZstd{.kind = ByteCodec::Kind::kZstd, .level = 1};
  const ByteCodecs codecs[] = {{}, {kCrc}, {kZstd}, {kZstd, kCrc}, {kCrc, kZstd}};
  ArrayMetadata metadata;
  metadata.type = {DType::kU16, {5, 6}};
  metadata.chunk_shape = {6, 6};
  metadata.fill_value.resize(2);
  metadata.codecs = codecs[choice % 5];
  if (choice & 0x40) {
    ShardLayout layout;
    layout.inner_shape = {2, 3};
    layout.codecs = std::exchange(metadata.codecs, {});
    layout.index_at_end = (choice & 0x20) != 0;
    metadata.sharding = layout;
  }
  return metadata;
}

}  // namespace
}  // namespace ulmus::checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus;
  using namespace ulmus::checkpoint;
  if (size == 0) return 0;
  const ArrayMetadata metadata = MetadataFor(data[0]);
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr size_t kTableBytes = 6 * sizeof(ShardEntry);
  if (metadata.sharding && (data[0] & 0x80) && bytes.size() >= kTableBytes + 4) {
    const size_t at = metadata.sharding->index_at_end ? bytes.size() - kTableBytes - 4 : 0;
    const uint32_t crc = Crc32c(std::string_view(bytes).substr(at, kTableBytes));
    std::memcpy(bytes.data() + at + kTableBytes, &crc, sizeof crc);
  }
  const OneObject store(std::move(bytes));
  ReadCache cache;
  const auto reader = ArrayReader::Parse(store, cache, "a", ArrayMetadataText(metadata),
                                         {.absent_is_damage = (data[0] & 0x10) != 0});
  CHECK(reader.ok(), "{}", reader.status().ToString());
  std::byte whole[60];
  std::byte part[8];
  const Status status = reader->ReadRange(0, whole);
  const Status part_status = reader->ReadBlock({1, 2}, {2, 2}, part);
  // What reads as a whole reads in parts, with the same values.
  if (status.ok()) {
    CHECK(part_status.ok(), "{}", part_status.ToString());
    CHECK(std::memcmp(part, whole + 16, 4) == 0 && std::memcmp(part + 4, whole + 28, 4) == 0,
          "a block differs from the whole");
  }
  return 0;
}
