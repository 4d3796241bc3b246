// Any bytes as an input of `tokenize`: refused, or records that do not depend on where reading is
// left and taken up again. The first byte chooses the kind of file.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <vector>

#include "base/check.h"
#include "data/tokenize_records.h"

namespace {

using namespace ulmus::data;

constexpr const char* kNames[] = {"a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.txt", "a.txt.gz"};
constexpr size_t kEnough = 2000;

struct Read {
  std::vector<Record> records;
  std::vector<RecordPosition> positions;  // behind each record
  bool ok = false;
};

Read ReadAll(const ulmus::Path& path, const RecordOptions& options, const RecordPosition& from) {
  Read read;
  auto reader = OpenRecords(path, options, from);
  if (!reader.ok()) return read;
  while (read.records.size() < kEnough) {
    Record record;
    const auto any = (*reader)->Next(record);
    read.ok = any.ok();
    if (!any.ok() || !*any) break;
    read.records.push_back(record);
    read.positions.push_back((*reader)->position());
  }
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const ulmus::TempDir dir;
  const ulmus::Path path = dir.path() / kNames[data[0] % std::size(kNames)];
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data + 1), static_cast<std::streamsize>(size - 1));
  const RecordOptions options = {
      .field = "text", .lines = data[0] % 2 == 0, .max_document_bytes = 100};
  const Read whole = ReadAll(path, options, {});
  for (const Record& record : whole.records) {
    if (record.kind != RecordKind::kJson || !record.error.ok()) continue;
    const auto text = TextOfJson(record.data, options.field);
    CHECK(!text.ok() || text->size() <= record.data.size());
  }
  if (whole.records.empty()) return 0;
  const size_t left = whole.records.size() / 2;
  const Read rest = ReadAll(path, options, whole.positions[left]);
  CHECK(rest.ok || !whole.ok);
  for (size_t i = 0; i < rest.records.size() && left + 1 + i < whole.records.size(); ++i) {
    CHECK(rest.records[i].data == whole.records[left + 1 + i].data &&
              rest.records[i].number == whole.records[left + 1 + i].number,
          "record {} differs when reading is taken up behind record {}", left + 1 + i, left);
  }
  return 0;
}
