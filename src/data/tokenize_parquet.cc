// Parquet inputs are recognised, so that they are not taken for text, but not read.
#include "data/tokenize_records.h"

namespace ulmus::data {

Result<std::unique_ptr<RecordReader>> OpenParquet(const Path& path, const RecordOptions&,
                                                  const RecordPosition&) {
  return UnimplementedError("{}: this program does not read Parquet; convert the file to .jsonl",
                            path);
}

}  // namespace ulmus::data
