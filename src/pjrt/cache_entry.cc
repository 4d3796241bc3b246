#include "pjrt/cache_entry.h"

#include "base/check.h"
#include "base/hash.h"

namespace ulmus::pjrt {
namespace {

constexpr size_t kKeyBytes = 32;
// Offsets of the header's fields; the magic stands at 0.
constexpr size_t kVersionAt = 8, kReservedAt = 12, kKeyAt = 16, kSizeAt = 48, kChecksumAt = 56;

template <class T>
std::string LittleEndian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i)
    bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
  return bytes;
}

uint64_t ReadLittleEndian(std::string_view bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string KeyBytes(const std::string& key) {
  CHECK(key.size() == 2 * kKeyBytes, "cache key '{}' has {} digits", key, key.size());
  std::string bytes;
  for (size_t i = 0; i < key.size(); i += 2) {
    const int high = HexDigit(key[i]);
    const int low = HexDigit(key[i + 1]);
    CHECK(high >= 0 && low >= 0, "cache key '{}' is not hexadecimal", key);
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace

std::string EncodeCacheEntry(const std::string& key, std::string_view payload) {
  std::string entry(kCacheMagic);
  entry += LittleEndian(kCacheFormatVersion);
  entry += LittleEndian(uint32_t{0});
  entry += KeyBytes(key);
  entry += LittleEndian(static_cast<uint64_t>(payload.size()));
  entry += LittleEndian(Xxh3(payload));
  CHECK(entry.size() == kCacheHeaderBytes, "header of {} bytes", entry.size());
  entry += payload;
  return entry;
}

Result<std::string_view> DecodeCacheEntry(const std::string& key, std::string_view entry) {
  if (entry.size() < kCacheHeaderBytes)
    return DataLossError("{} bytes, shorter than the header of {}", entry.size(),
                         kCacheHeaderBytes);
  if (!entry.starts_with(kCacheMagic))
    return DataLossError("not a cache entry (it does not start with {})", kCacheMagic);
  const uint64_t version = ReadLittleEndian(entry, kVersionAt, sizeof(uint32_t));
  if (version != kCacheFormatVersion)
    return DataLossError("format version {}, expected {}", version, kCacheFormatVersion);
  if (ReadLittleEndian(entry, kReservedAt, sizeof(uint32_t)) != 0)
    return DataLossError("reserved bytes are not zero");
  if (entry.substr(kKeyAt, kKeyBytes) != KeyBytes(key))
    return DataLossError("belongs to another key");
  const uint64_t size = ReadLittleEndian(entry, kSizeAt, sizeof(uint64_t));
  const std::string_view payload = entry.substr(kCacheHeaderBytes);
  if (size != payload.size())
    return DataLossError("payload of {} bytes, the header says {}", payload.size(), size);
  const uint64_t checksum = ReadLittleEndian(entry, kChecksumAt, sizeof(uint64_t));
  const uint64_t found = Xxh3(payload);
  if (found != checksum)
    return DataLossError("checksum {:016x}, the header says {:016x}", found, checksum);
  return payload;
}

}  // namespace ulmus::pjrt
