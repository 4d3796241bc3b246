#include "metrics/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace ulmus::metrics {

Result<AppendFile> AppendFile::Open(const Path& path) {
  FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError(errno, path, "open");
  const int64_t size_bytes = TRY(FileSizeBytes(path));
  if (size_bytes == 0) TRY(SyncDirectory(path.has_parent_path() ? path.parent_path() : "."));
  return AppendFile(path, std::move(fd), size_bytes);
}

Status AppendFile::Append(std::span<const std::byte> bytes) {
  if (torn_) TRY(CutBack());
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = write(fd_.get(), bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const Status failed = ErrnoError(errno, path_, "write");
      torn_ = written > 0;
      // If cutting fails, too, the next Append tries again: the first error is the one to know.
      if (torn_) (void)CutBack().ok();
      return failed;
    }
    written += static_cast<size_t>(count);
  }
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return {};
}

Status AppendFile::CutBack() {
  if (ftruncate(fd_.get(), size_bytes_) != 0) return ErrnoError(errno, path_, "cut back");
  torn_ = false;
  return {};
}

Status AppendFile::Sync() {
  if (fsync(fd_.get()) != 0) return ErrnoError(errno, path_, "sync");
  return {};
}

void ByteRanges::Add(int64_t begin, int64_t end) {
  if (!ranges_.empty() && ranges_.back().end == begin)
    ranges_.back().end = end;
  else
    ranges_.push_back({begin, end});
}

Status ByteRanges::CutFile(const Path& path) const {
  const int64_t size_bytes = TRY(FileSizeBytes(path));
  if (ranges_.empty()) return size_bytes == 0 ? Status() : TruncateFile(path, 0);
  if (ranges_.size() == 1 && ranges_[0].begin == 0)
    return ranges_[0].end == size_bytes ? Status() : TruncateFile(path, ranges_[0].end);
  const MappedFile old = TRY(MappedFile::Open(path));
  AtomicFile file = TRY(AtomicFile::Create(path));
  for (const auto& [begin, end] : ranges_)
    TRY(file.Write(
        old.bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))));
  return file.Commit();
}

Status ByteRanges::TruncateFile(const Path& path, int64_t size_bytes) {
  FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path, "open");
  if (ftruncate(fd.get(), size_bytes) != 0) return ErrnoError(errno, path, "cut");
  if (fsync(fd.get()) != 0) return ErrnoError(errno, path, "sync");
  return {};
}

}  // namespace ulmus::metrics
