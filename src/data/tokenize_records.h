// Documents of an input file, one after the other: `.jsonl` one object a line, `.parquet` one row,
// anything else one text (or one line) a document; `.gz` and `.zst` are unpacked on the way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::data {

struct RecordOptions {
  std::string field = "text";  // of a JSON object, or the column of a Parquet file
  bool lines = false;          // text files: each line is a document
  int64_t max_document_bytes = int64_t{256} << 20;
};

enum class RecordKind {
  kBytes,  // a document, whatever its bytes
  kText,   // a document that must be UTF-8
  kJson,   // an object whose field is the document
};

struct Record {
  std::string data;
  int64_t number = 0;  // of the line or row, from 1
  RecordKind kind = RecordKind::kBytes;
  Status error;  // why there is no data; the file goes on behind it
};

// Where reading goes on: after `records` lines or rows, `bytes` into the unpacked text.
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

// For a document of more than `limit_bytes`.
inline Status DocumentTooLong(int64_t limit_bytes) {
  return OutOfRangeError("more than {} bytes; --max-document-mb allows more", limit_bytes);
}

}  // namespace ulmus::data
