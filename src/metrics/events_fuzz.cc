// Any bytes as an event file, as they are and as the payload of a record whose checksums hold.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "metrics/tensorboard.h"

namespace {

std::string Framed(std::string_view payload) {
  std::string bytes;
  const auto append = [&](const auto& number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  const uint64_t size_bytes = payload.size();
  append(size_bytes);
  append(ulmus::MaskCrc32c(ulmus::Crc32c(bytes)));
  bytes += payload;
  append(ulmus::MaskCrc32c(ulmus::Crc32c(payload)));
  return bytes;
}

void Check(std::string_view bytes) {
  static const ulmus::TempDir folder;
  const ulmus::Path path = folder.path() / "events.out.tfevents.1";
  CHECK(ulmus::WriteFileAtomic(path, bytes).ok());
  const auto ignore = [](const ulmus::metrics::Event&) { return ulmus::Status(); };
  const ulmus::Status read = ulmus::metrics::ReadEvents(path, ignore);
  const ulmus::Status repair = ulmus::metrics::RepairEvents(folder.path(), 3);
  CHECK(repair.ok() == read.ok());
  if (!read.ok()) return;
  CHECK(ulmus::metrics::ReadEvents(path, [](const ulmus::metrics::Event& event) {
          CHECK(event.values.empty() || event.step <= 3);
          return ulmus::Status();
        }).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Check(bytes);
  Check(Framed(bytes) + Framed(bytes));
  return 0;
}
