// The strict reader accepts no more than the parser behind it, and what it accepts prints and reads
// back the same.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = ulmus::ParseJson(text);
  const auto ordered = ulmus::ParseOrderedJson(text);
  CHECK(value.ok() == ordered.ok(), "one reader accepts it, the other does not");
  if (!value.ok()) return 0;
  const std::string printed = ulmus::JsonText(*value);
  const auto again = ulmus::ParseJson(printed);
  CHECK(again.ok() && ulmus::JsonText(*again) == printed, "{} reads back as something else",
        printed);
  return 0;
}
