#include "data/tokenize_bytes.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace ulmus::data {
namespace {

constexpr size_t kBlockBytes = size_t{256} << 10;

class FileBytes : public ByteSource {
 public:
  static Result<std::unique_ptr<FileBytes>> Open(const Path& path) {
    FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return ErrnoError(errno, path, "open");
    return std::unique_ptr<FileBytes>(new FileBytes(path, std::move(fd)));
  }

  Result<size_t> Read(std::span<char> out) override {
    while (true) {
      const ssize_t count = read(fd_.get(), out.data(), out.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoError(errno, path_, "read");
      position_ += count;
      return static_cast<size_t>(count);
    }
  }
  int64_t file_position() const override { return position_; }

  Status Skip(int64_t count) override {
    if (count > TRY(FileSizeBytes(path_)))
      return DataLossError("{}: ends before byte {}, where the work was left", path_, count);
    if (lseek(fd_.get(), count, SEEK_CUR) < 0) return ByteSource::Skip(count);
    position_ += count;
    return {};
  }

  const Path& path() const { return path_; }

 private:
  FileBytes(Path path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Path path_;
  FileDescriptor fd_;
  int64_t position_ = 0;
};

// What the unpackers share: a block of packed bytes, refilled from the file.
class PackedBytes : public ByteSource {
 public:
  explicit PackedBytes(std::unique_ptr<FileBytes> file)
      : file_(std::move(file)), block_(kBlockBytes) {}
  int64_t file_position() const override { return file_->file_position(); }

 protected:
  // False at the end of the file.
  Result<bool> Refill() {
    size_ = TRY(file_->Read(block_));
    used_ = 0;
    return size_ > 0;
  }
  Status Damaged(std::string_view what) const {
    return DataLossError("{}: {} (after {} bytes of the file); fetch or pack it again",
                         file_->path(), what, file_->file_position());
  }

  std::unique_ptr<FileBytes> file_;
  std::vector<char> block_;
  size_t used_ = 0;
  size_t size_ = 0;
  bool pending_ = false;  // the unpacker may hold bytes that did not fit the last output
};

class GzipBytes : public PackedBytes {
 public:
  explicit GzipBytes(std::unique_ptr<FileBytes> file) : PackedBytes(std::move(file)) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    CHECK(inflateInit2(&stream_, kGzipOnly) == Z_OK, "zlib got no memory");
  }
  ~GzipBytes() override { inflateEnd(&stream_); }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;

  Result<size_t> Read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), kBlockBytes));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      if (used_ == size_ && !pending_ && !TRY(Refill())) {
        if (in_member_ || members_ == 0) return Damaged("the gzip data ends too early");
        return size_t{0};
      }
      TRY(Inflate());
    }
    pending_ = stream_.avail_out == 0;
    return static_cast<size_t>(wanted - stream_.avail_out);
  }

 private:
  Status Inflate() {
    if (!in_member_) {
      // Zero bytes may follow the last member (tapes, block devices).
      while (members_ > 0 && used_ < size_ && block_[used_] == 0) ++used_;
      if (used_ == size_) return {};
      inflateReset(&stream_);
      in_member_ = true;
    }
    stream_.next_in = reinterpret_cast<Bytef*>(block_.data() + used_);
    stream_.avail_in = static_cast<uInt>(size_ - used_);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    used_ = size_ - stream_.avail_in;
    pending_ = false;
    if (code == Z_STREAM_END) {
      in_member_ = false;
      ++members_;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return Damaged(fmt::format("the gzip data is damaged: {}",
                                 stream_.msg == nullptr ? zError(code) : stream_.msg));
    }
    return {};
  }

  z_stream stream_{};
  bool in_member_ = false;
  int64_t members_ = 0;
};

class ZstdBytes : public PackedBytes {
 public:
  explicit ZstdBytes(std::unique_ptr<FileBytes> file)
      : PackedBytes(std::move(file)), stream_(ZSTD_createDStream()) {
    CHECK(stream_ != nullptr, "zstd got no memory");
  }
  ~ZstdBytes() override { ZSTD_freeDStream(stream_); }
  ZstdBytes(const ZstdBytes&) = delete;
  ZstdBytes& operator=(const ZstdBytes&) = delete;

  Result<size_t> Read(std::span<char> out) override {
    ZSTD_outBuffer output = {.dst = out.data(), .size = out.size(), .pos = 0};
    while (output.pos == 0) {
      if (used_ == size_ && !pending_ && !TRY(Refill())) {
        if (in_frame_ || frames_ == 0) return Damaged("the zstd data ends too early");
        return size_t{0};
      }
      ZSTD_inBuffer input = {.src = block_.data(), .size = size_, .pos = used_};
      const size_t code = ZSTD_decompressStream(stream_, &output, &input);
      used_ = input.pos;
      if (ZSTD_isError(code)) {
        return Damaged(fmt::format("the zstd data is damaged: {}", ZSTD_getErrorName(code)));
      }
      in_frame_ = code != 0;
      pending_ = in_frame_ && output.pos == output.size;
      if (!in_frame_) ++frames_;
    }
    return output.pos;
  }

 private:
  ZSTD_DStream* stream_;
  bool in_frame_ = false;
  int64_t frames_ = 0;
};

}  // namespace

Status ByteSource::Skip(int64_t count) {
  std::vector<char> scratch(kBlockBytes);
  while (count > 0) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(count, kBlockBytes));
    const size_t got = TRY(Read(std::span(scratch.data(), wanted)));
    if (got == 0) return DataLossError("the text ends before the place where the work was left");
    count -= static_cast<int64_t>(got);
  }
  return {};
}

Result<std::unique_ptr<ByteSource>> OpenByteSource(const Path& path) {
  std::unique_ptr<FileBytes> file = TRY(FileBytes::Open(path));
  if (path.extension() == ".gz")
    return std::unique_ptr<ByteSource>(std::make_unique<GzipBytes>(std::move(file)));
  if (path.extension() == ".zst")
    return std::unique_ptr<ByteSource>(std::make_unique<ZstdBytes>(std::move(file)));
  return std::unique_ptr<ByteSource>(std::move(file));
}

LineReader::LineReader(std::unique_ptr<ByteSource> source, int64_t max_line_bytes)
    : source_(std::move(source)), max_line_bytes_(max_line_bytes), buffer_(kBlockBytes, '\0') {}

Result<bool> LineReader::Next(std::string& line, bool& too_long) {
  line.clear();
  too_long = false;
  bool any = false;
  while (true) {
    if (start_ == end_) {
      start_ = 0;
      end_ = TRY(source_->Read(buffer_));
      if (end_ == 0) return any;  // the last line may lack its end
    }
    any = true;
    const char* from = buffer_.data() + start_;
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - start_));
    const size_t size = newline == nullptr ? end_ - start_ : static_cast<size_t>(newline - from);
    if (static_cast<int64_t>(line.size() + size) > max_line_bytes_) too_long = true;
    if (too_long) {
      line.clear();
    } else {
      line.append(from, size);
    }
    const size_t used = size + (newline == nullptr ? 0 : 1);
    start_ += used;
    offset_ += static_cast<int64_t>(used);
    if (newline != nullptr) return true;
  }
}

}  // namespace ulmus::data
