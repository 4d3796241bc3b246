// Fuzzes the reader of manifests: whatever it takes must print and read back as the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "data/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus::data;
  const auto manifest =
      ParseManifest(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!manifest.ok()) return 0;
  const auto again = ParseManifest(PrintManifest(*manifest), "printed");
  CHECK(again.ok() && *again == *manifest, "a manifest that does not survive printing");
  return 0;
}
