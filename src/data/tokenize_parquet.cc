// Parquet through Arrow C++, if the build has it (CMake option ULMUS_PARQUET).
#include "data/tokenize_records.h"

#ifndef ULMUS_HAS_PARQUET

namespace ulmus::data {

Result<std::unique_ptr<RecordReader>> OpenParquet(const Path& path, const RecordOptions&,
                                                  const RecordPosition&) {
  return UnimplementedError(
      "{}: this program was built without Parquet; run `make setup WHEELS=parquet` and build "
      "again, "
      "or convert the file to .jsonl",
      path);
}

}  // namespace ulmus::data

#endif
