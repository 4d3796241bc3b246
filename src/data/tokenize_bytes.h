// Bytes of an input file from front to back, unpacked on the way: plain, gzip (any number of
// members) or Zstandard (any number of frames).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::data {

// One thread. Memory does not depend on the file, however small it was packed.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills the front of `out` and returns how much; 0 only at the end. kDataLoss names the file if
  // it is cut or damaged.
  virtual Result<size_t> Read(std::span<char> out) = 0;
  // Bytes taken from the file so far, packed as they are: for progress.
  virtual int64_t file_position() const = 0;
  // Skips bytes of the unpacked text; kDataLoss if it is shorter.
  virtual Status Skip(int64_t count);
};

// Unpacks what is called .gz or .zst.
Result<std::unique_ptr<ByteSource>> OpenByteSource(const Path& path);

// Lines of a source.
class LineReader {
 public:
  LineReader(std::unique_ptr<ByteSource> source, int64_t max_line_bytes);

  // The next line without its end; false when there is none. A line longer than the limit is read
  // over: `line` is then empty and `too_long` true.
  Result<bool> Next(std::string& line, bool& too_long);
  // Bytes of the unpacked text before the next line.
  int64_t offset() const { return offset_; }
  int64_t file_position() const { return source_->file_position(); }

 private:
  std::unique_ptr<ByteSource> source_;
  int64_t max_line_bytes_;
  std::string buffer_;
  size_t start_ = 0;  // of what is not used yet
  size_t end_ = 0;
  int64_t offset_ = 0;
};

}  // namespace ulmus::data
