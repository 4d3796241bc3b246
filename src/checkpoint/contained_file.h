// Files that were named by somebody else's file: only regular files inside their folder are opened.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::checkpoint {

// A name from a foreign file as it may be printed: JSON-escaped, in quotes, cut after 200 bytes.
std::string Quoted(std::string_view name);

// kDataLoss unless `name` is the plain name of a file: no separator, NUL or control character, not
// empty, not "." or "..", at most 255 bytes, valid UTF-8. Touches no file.
Status CheckBaseName(std::string_view name);

// Where folder/name lies, symbolic links followed. kNotFound if nothing has that name; kDataLoss if
// a link leads out of the folder or the target is not a regular file. One way out is allowed, that
// of the Hugging Face cache: <repo>/snapshots/<revision>/x -> <repo>/blobs/<digest>.
Result<Path> ResolveInside(const Path& folder, std::string_view name);

// A regular file opened for reads at any offset, by any thread. Reads instead of a map: a file that
// shrinks meanwhile is an error, not a signal.
class RandomAccessFile {
 public:
  static Result<RandomAccessFile> Open(const Path& path);

  int64_t size_bytes() const { return size_bytes_; }
  const Path& path() const { return path_; }
  // kDataLoss if the file ends before `out` is full.
  Status ReadAt(int64_t offset, std::span<std::byte> out) const;

 private:
  RandomAccessFile(Path path, FileDescriptor fd, int64_t size_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), size_bytes_(size_bytes) {}
  Path path_;
  FileDescriptor fd_;
  int64_t size_bytes_;
};

// ResolveInside, then the whole file, at most `limit_bytes`.
Result<std::string> ReadFileInside(const Path& folder, std::string_view name, int64_t limit_bytes);

}  // namespace ulmus::checkpoint
