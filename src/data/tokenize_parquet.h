// Between the program and `ulmus_parquet.so`, the module that holds all code that touches Arrow.
// Its libraries take tens of milliseconds to load, so it is opened when an input is Parquet.
#pragma once

#include <memory>

#include "base/file.h"
#include "base/status.h"
#include "data/tokenize_records.h"

namespace ulmus::data {

inline constexpr char kParquetModule[] = "ulmus_parquet.so";
inline constexpr char kParquetFunction[] = "UlmusOpenParquet";

// What the module exports under that name. Both sides come from one build.
using ParquetFunction = void(const Path& path, const RecordOptions& options,
                             const RecordPosition& from,
                             Result<std::unique_ptr<RecordReader>>& out);

// Rows of a file, one column each. kDataLoss: damaged, or no Parquet; kInvalidArgument: it has no
// such column of text, those it has are named; kFailedPrecondition: the module does not load.
Result<std::unique_ptr<RecordReader>> OpenParquet(const Path& path, const RecordOptions& options,
                                                  const RecordPosition& from);

}  // namespace ulmus::data
