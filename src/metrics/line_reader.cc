#include "metrics/line_reader.h"

#include <fcntl.h>

#include <cerrno>
#include <span>

namespace ulmus::metrics {

Result<LineReader> LineReader::Open(const Path& path, int64_t max_line_bytes) {
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, path, "open");
  return LineReader(path, std::move(fd), max_line_bytes);
}

Result<bool> LineReader::Next() {
  begin_ = end();
  at_ += std::exchange(size_, 0);
  number_ += 1;
  size_t searched = at_;
  for (;;) {
    const size_t found = buffer_.find('\n', searched);
    whole_ = found != std::string::npos;
    size_ = (whole_ ? found + 1 : buffer_.size()) - at_;
    if (static_cast<int64_t>(size_) > max_line_bytes_)
      return DataLossError("{}:{}: longer than {} bytes", path_, number_, max_line_bytes_);
    if (whole_) return true;
    const size_t unread = size_;
    if (!TRY(ReadMore())) return size_ > 0;
    searched = at_ + unread;
  }
}

// Moves the line begun to the front of the buffer and reads on behind it.
Result<bool> LineReader::ReadMore() {
  constexpr size_t kChunkBytes = 1 << 16;
  buffer_.erase(0, std::exchange(at_, 0));
  buffer_.resize(size_ + kChunkBytes);
  const std::span<char> room(buffer_.data() + size_, kChunkBytes);
  const int64_t count = TRY(ReadAt(fd_.get(), path_, end(), std::as_writable_bytes(room)));
  buffer_.resize(size_ + static_cast<size_t>(count));
  return count > 0;
}

}  // namespace ulmus::metrics
