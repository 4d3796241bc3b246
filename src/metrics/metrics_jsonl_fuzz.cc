// Any bytes as metrics.jsonl: read or refused; what is read prints and reads back the same, and a
// repaired file is one that reads without damage.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "metrics/jsonl.h"
#include "metrics/record_json.h"

using ulmus::Status;
using ulmus::metrics::Record;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ulmus::TempDir folder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const ulmus::Result<Record> record = ulmus::metrics::ParseRecord(text); record.ok()) {
    const std::string printed = ToJson(*record);
    const ulmus::Result<Record> again = ulmus::metrics::ParseRecord(printed);
    CHECK(again.ok(), "{}", printed);
    CHECK(ToJson(*again) == printed, "{}", printed);  // NaN differs from itself, its text does not
  }
  const ulmus::Path path = folder.path() / "metrics.jsonl";
  CHECK(ulmus::WriteFileAtomic(path, text).ok());
  int64_t num_records = 0;
  const Status read = ulmus::metrics::ReadMetrics(path, [&](const Record&) {
    ++num_records;
    return Status();
  });
  const auto repair = ulmus::metrics::RepairMetrics(path, 3);
  CHECK(repair.ok() == read.ok());
  if (!read.ok()) return 0;
  CHECK(repair->kept + repair->dropped == num_records);
  int64_t kept = 0;
  CHECK(ulmus::metrics::ReadMetrics(path, [&](const Record& record) {
          CHECK(StepOf(record) <= 3);
          ++kept;
          return Status();
        }).ok());
  CHECK(kept == repair->kept);
  return 0;
}
