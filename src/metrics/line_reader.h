// Lines of a file, one at a time in bounded memory, with their places.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::metrics {

class LineReader {
 public:
  static Result<LineReader> Open(const Path& path, int64_t max_line_bytes);

  // False at the end of the file; kDataLoss names a line that is too long.
  Result<bool> Next();

  // The current line without its end; lasts until the next call of Next().
  std::string_view line() const {
    return std::string_view(buffer_).substr(at_, size_ - (whole_ ? 1 : 0));
  }
  bool whole() const { return whole_; }       // false: the file ends without a line end
  int64_t number() const { return number_; }  // 1 for the first
  int64_t begin() const { return begin_; }    // bytes of the line in the file, its end included
  int64_t end() const { return begin_ + static_cast<int64_t>(size_); }

 private:
  LineReader(Path path, FileDescriptor fd, int64_t max_line_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), max_line_bytes_(max_line_bytes) {}
  Result<bool> ReadMore();

  Path path_;
  FileDescriptor fd_;
  int64_t max_line_bytes_;
  std::string buffer_;  // a piece of the file; the current line is size_ bytes at at_
  size_t at_ = 0, size_ = 0;
  bool whole_ = true;
  int64_t number_ = 0;
  int64_t begin_ = 0;
};

}  // namespace ulmus::metrics
