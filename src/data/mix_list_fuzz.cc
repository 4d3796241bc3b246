// Any text as a mix list: refused, or entries that can be located.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "data/mix_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus::data;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto entries = ParseMixList(text, "fuzz");
  if (!entries.ok()) {
    CHECK(ulmus::ExitCodeFor(entries.status()) == ulmus::kExitUsage);
    return 0;
  }
  const PathRemap remaps[] = {{"s3://", "/mnt/"}, {"a", "b"}};
  for (const MixEntry& entry : *entries) {
    CHECK(!entry.label.empty() && !entry.path.empty());
    (void)LocalPath(entry.path, "/base", remaps);
  }
  return 0;
}
