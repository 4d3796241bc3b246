// Documents of an input file, one after the other: `.jsonl` one object a line, anything else one
// text (or one line) a document; `.gz` and `.zst` are unpacked on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::data {

struct RecordOptions {
  std::string field = "text";  // of a JSON object
  bool lines = false;          // text files: each line is a document
  int64_t max_document_bytes = int64_t{256} << 20;
};

struct Record {
  std::string data;
  int64_t number = 0;  // of the line, from 1
  bool is_json = false;
  bool too_long = false;  // data was dropped
};

// Where reading goes on: after `records` lines, `bytes` into the unpacked text.
struct RecordPosition {
  int64_t records = 0;
  int64_t bytes = 0;
  friend bool operator==(const RecordPosition&, const RecordPosition&) = default;
};

// One thread.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  virtual Result<bool> Next(Record& record) = 0;
  virtual RecordPosition position() const = 0;
  virtual int64_t file_position() const = 0;  // bytes of the file used so far
};

// kNotFound, kDataLoss name the file.
Result<std::unique_ptr<RecordReader>> OpenRecords(const Path& path, const RecordOptions& options,
                                                  const RecordPosition& from = {});

// The text of a JSON object's field. kDataLoss: not JSON, or the field holds no text;
// kInvalidArgument: it has no such field; the nearest name is suggested.
Result<std::string> TextOfJson(std::string_view json, const std::string& field);

// kUnimplemented: `.parquet` is not read.
Result<std::unique_ptr<RecordReader>> OpenParquet(const Path& path, const RecordOptions& options,
                                                  const RecordPosition& from);

}  // namespace ulmus::data
