// A file that grows by whole pieces: a piece is there or it is not, also when the disk is full.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::metrics {

// One writer. Pieces reach the kernel before Append returns, so only the machine's end can lose
// them; a process killed in the middle of Append leaves a part of the last piece.
class AppendFile {
 public:
  // Creates the file if needed; goes on at its end.
  static Result<AppendFile> Open(const Path& path);

  // After an error the file is as before, and the next call may succeed. A full disk is
  // kResourceExhausted.
  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) {
    return Append(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  // Makes what was appended durable.
  Status Sync();

  const Path& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  AppendFile(Path path, FileDescriptor fd, int64_t size_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), size_bytes_(size_bytes) {}
  // Removes what a failed Append left behind.
  Status CutBack();

  Path path_;
  FileDescriptor fd_;
  int64_t size_bytes_ = 0;  // of whole pieces
  bool torn_ = false;       // bytes of a failed Append may lie behind them
};

// Parts of a file that are to stay, collected from its beginning on.
class ByteRanges {
 public:
  void Add(int64_t begin, int64_t end);
  // Removes all other bytes, durably: in place if what goes is the end of the file (needs no space
  // on the disk), else by an atomic rewrite. Writes nothing if all stays.
  Status CutFile(const Path& path) const;

 private:
  struct Range {
    int64_t begin, end;
  };
  static Status TruncateFile(const Path& path, int64_t size_bytes);

  std::vector<Range> ranges_;  // neighbours are merged, so a whole file is one
};

}  // namespace ulmus::metrics
