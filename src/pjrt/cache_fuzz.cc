// Fuzzes the parser of cache entries. The first byte chooses whether the rest stands alone or
// follows a valid header, so that the fuzzer reaches the checks behind the magic and the key.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "pjrt/cache_entry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus::pjrt;
  if (size == 0) return 0;
  const std::string key(64, 'a');
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string entry(input);
  if (data[0] % 2 == 1) {
    entry = EncodeCacheEntry(key, input);
    // What was written must be read back.
    const auto payload = DecodeCacheEntry(key, entry);
    CHECK(payload.ok() && *payload == input, "round trip of {} bytes", input.size());
    if (!input.empty()) entry[data[0] % kCacheHeaderBytes] = static_cast<char>(input[0]);
  }
  const auto payload = DecodeCacheEntry(key, entry);
  // Accepted bytes are exactly what the encoder writes: nothing is ignored.
  if (payload.ok())
    CHECK(EncodeCacheEntry(key, *payload) == entry, "accepted an entry that we would not write");
  return 0;
}
