// JSON of outside files, read strictly: one value, bounded size and depth, no duplicate keys, no
// bytes after the end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ulmus::checkpoint {

using Json = nlohmann::json;

inline constexpr int kMaxJsonDepth = 32;

// kInvalidArgument says what is wrong and at which byte.
Result<Json> ParseStrictJson(std::string_view text);

// Compact text with sorted keys: the same value gives the same bytes. Bytes that are no UTF-8 are
// replaced.
std::string JsonText(const Json& value);

// At most `limit` characters of the value, for messages.
std::string JsonExcerpt(const Json& value, size_t limit = 60);

}  // namespace ulmus::checkpoint
