// Any text as an index JSON: refused, or consistent and equal to what it prints.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "data/index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus::data;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto index = ParseIndex(text, "fuzz");
  if (index.ok()) {
    const auto again = ParseIndex(PrintIndex(*index), "printed");
    CHECK(again.ok() && *again == *index);
    return 0;
  }
  // The fingerprint keeps random input out: take it away to reach what lies behind.
  Index made{.sequence_length = 1 + static_cast<int64_t>(size % 64)};
  made.files.push_back({.path = std::string(text.substr(0, 40)),
                        .label = std::string(text.substr(text.size() / 2)),
                        .n_tokens = static_cast<int64_t>(size) * 1000});
  if (!CompleteIndex(made).ok()) return 0;
  std::string printed = PrintIndex(made);
  if (size > 2) printed[(data[0] * 256u + data[1]) % printed.size()] = static_cast<char>(data[2]);
  (void)ParseIndex(printed, "changed");
  return 0;
}
