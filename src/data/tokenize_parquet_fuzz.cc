// Any bytes as a Parquet file: refused, or rows up to an end. Good seeds: testdata/parquet.
#include <cstddef>
#include <cstdint>
#include <fstream>

#include "base/check.h"
#include "data/tokenize_parquet.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ulmus::data;
  static const ulmus::TempDir dir;
  const ulmus::Path path = dir.path() / "a.parquet";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  auto reader =
      OpenParquet(path, {.field = "text", .lines = false, .max_document_bytes = 1000}, {});
  if (!reader.ok()) return 0;
  constexpr int kEnough = 10'000;
  Record record;
  for (int row = 1; row <= kEnough; ++row) {
    const auto any = (*reader)->Next(record);
    if (!any.ok() || !*any) break;
    CHECK(record.number == row && record.data.size() <= 1000);
  }
  return 0;
}
