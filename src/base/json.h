// JSON of outside files, read strictly: one value, bounded size and depth, no key twice in one
// object (readers differ in which of the two they take), no bytes after the end. No exceptions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace ulmus {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keys keep their order, for files written again

struct JsonLimits {
  int64_t max_bytes = int64_t{64} << 20;
  int max_depth = 32;
};

// kInvalidArgument says what is wrong and where. Nothing is built before all of the text was seen;
// a value takes at most some 50 times its text.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});
Result<OrderedJson> ParseOrderedJson(std::string_view text, const JsonLimits& limits = {});

// Compact text with sorted keys: the same value gives the same bytes. Bytes that are no UTF-8 are
// replaced.
std::string JsonText(const Json& value);

// At most `limit` characters of the value, for messages.
std::string JsonExcerpt(const Json& value, size_t limit = 60);

}  // namespace ulmus
