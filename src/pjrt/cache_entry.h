// Bytes of one cache entry: 64 bytes of header, then the payload. docs/formats/executable_cache.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ulmus::pjrt {

inline constexpr std::string_view kCacheMagic = "ULMUSEXE";
inline constexpr uint32_t kCacheFormatVersion = 1;
inline constexpr size_t kCacheHeaderBytes = 64;

// `key` is 64 lower-case hexadecimal digits (CHECK).
std::string EncodeCacheEntry(const std::string& key, std::string_view payload);

// The payload, a view into `entry`. kDataLoss for anything but an intact entry of this version
// under this key; the message says what is wrong. Reads nothing outside `entry` and allocates
// nothing that depends on its contents.
Result<std::string_view> DecodeCacheEntry(const std::string& key, std::string_view entry);

}  // namespace ulmus::pjrt
