// Any bytes as a sidecar, as text and as gzip: refused, or ends that grow and stay inside the file.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "data/document_ends.h"

namespace {

constexpr int64_t kTokens = 100'000;

void CheckEnds(const ulmus::Result<std::vector<int64_t>>& ends) {
  if (!ends.ok()) return;
  int64_t last = 0;
  for (int64_t end : *ends) {
    CHECK(end > last && end <= kTokens);
    last = end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ulmus::TempDir dir;
  CheckEnds(
      ulmus::data::ParseSidecar({reinterpret_cast<const char*>(data), size}, kTokens, "fuzz"));
  const ulmus::Path path = dir.path() / "a.csv.gz";
  CHECK(ulmus::WriteFileAtomic(path, std::as_bytes(std::span(data, size))).ok());
  CheckEnds(ulmus::data::ReadSidecar(path, kTokens));
  return 0;
}
