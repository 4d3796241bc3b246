// Fuzzes zarr.json: whatever is accepted is written and read back as the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "checkpoint/manifest.h"
#include "checkpoint/zarr_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus::checkpoint;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto array = ParseArrayMetadata(text);
  if (array.ok()) {
    const auto again = ParseArrayMetadata(ArrayMetadataText(*array));
    CHECK(again.ok() && *again == *array, "another array after writing {}",
          ArrayMetadataText(*array));
  }
  const auto manifest = ParseManifest(text);
  if (manifest.ok()) CHECK(ManifestText(*manifest) == text, "accepted a manifest we do not write");
  return 0;
}
