#include "data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "data/npy.h"

namespace ulmus::data {
namespace {

// Elements converted at a time: a constant trip count, so that the compiler uses vectors.
constexpr size_t kBlock = 1024;

Status ReadAll(int fd, const Path& path, int64_t offset, std::span<std::byte> bytes) {
  const int64_t count = TRY(ReadAt(fd, path, offset, bytes));
  if (count < static_cast<int64_t>(bytes.size()))
    return DataLossError(
        "{}: ends at byte {}, though it was longer when it was opened: it was cut "
        "while in use; restore it and start again",
        path, offset + count);
  return Status();
}

Result<FileDescriptor> OpenToRead(const Path& path) {
  if (path.native().find('\0') != std::string::npos)
    return InvalidArgumentError("{}: path holds a NUL byte", path);
  int fd;
  do {
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoError(errno, path, "open");
  return FileDescriptor(fd);
}

Result<struct stat> StatOf(const FileDescriptor& fd, const Path& path) {
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return ErrnoError(errno, path, "stat");
  if (S_ISDIR(info.st_mode)) return ErrnoError(EISDIR, path, "read");
  if (!S_ISREG(info.st_mode))
    return InvalidArgumentError("{}: not a regular file; tokens are read at any place", path);
  return info;
}

// Whether all of a block are in [0, limit): in 32 bits without a branch, else by comparison.
template <class Element>
bool AllBelow(const Element* elements, size_t count, int64_t limit) {
  if constexpr (sizeof(Element) == 4) {
    const auto last = static_cast<uint32_t>(limit - 1);
    uint32_t bad = 0;  // the top bit of x, or of last - x, is set for ids outside
    if (count == kBlock) {
      for (size_t i = 0; i < kBlock; ++i) {
        const auto x = static_cast<uint32_t>(elements[i]);
        bad |= x | (last - x);
      }
    } else {
      for (size_t i = 0; i < count; ++i) {
        const auto x = static_cast<uint32_t>(elements[i]);
        bad |= x | (last - x);
      }
    }
    return bad >> 31 == 0;
  } else {
    bool below = true;
    for (size_t i = 0; i < count; ++i) below &= std::cmp_less(elements[i], limit);
    if constexpr (std::is_signed_v<Element>) {
      for (size_t i = 0; i < count; ++i) below &= elements[i] >= 0;
    }
    return below;
  }
}

// Calls `f` with a value of the element type that `dtype` names.
template <class F>
Status WithElement(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return f(uint8_t{});
    case DType::kI8:
      return f(int8_t{});
    case DType::kU16:
      return f(uint16_t{});
    case DType::kI16:
      return f(int16_t{});
    case DType::kU32:
      return f(uint32_t{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kU64:
      return f(uint64_t{});
    case DType::kI64:
      return f(int64_t{});
    default:
      CHECK(false, "tokens of dtype {}", Name(dtype));
  }
}

}  // namespace

TokenFile::Identity TokenFile::IdentityOf(const struct stat& info) {
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size_bytes = info.st_size,
          .changed_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
}

TokenFile::TokenFile(Path path, const TokenFileOptions& options, const Identity& identity)
    : path_(std::move(path)),
      options_(options),
      identity_(identity),
      size_bytes_(identity.size_bytes) {
  constexpr int64_t kAllIds = int64_t{1} << 31;
  limit_ = options.vocab_size > 0 ? std::min(options.vocab_size, kAllIds) : kAllIds;
}

TokenFile::~TokenFile() {
  if (const std::byte* data = data_.load())
    munmap(const_cast<std::byte*>(data), static_cast<size_t>(size_bytes_));
}

Result<std::unique_ptr<TokenFile>> TokenFile::Open(const Path& path,
                                                   const TokenFileOptions& options) {
  CHECK(IsInt(options.dtype) || options.dtype == DType::kBool, "tokens of dtype {}",
        Name(options.dtype));
  const FileDescriptor fd = TRY(OpenToRead(path));
  const struct stat info = TRY(StatOf(fd, path));
  std::unique_ptr<TokenFile> file(new TokenFile(path, options, IdentityOf(info)));

  std::array<std::byte, kMaxNpyHeaderBytes> buffer;
  const auto start = std::span(buffer).first(
      static_cast<size_t>(std::min<int64_t>(info.st_size, kMaxNpyHeaderBytes)));
  const auto magic = start.first(std::min(start.size(), kNpyMagic.size()));
  TRY(ReadAll(fd.get(), path, 0, magic));
  if (!IsNpy(magic)) {
    const int64_t width = SizeBytes(options.dtype);
    if (info.st_size % width != 0) {
      return DataLossError(
          "{}: {} bytes is not a whole number of {} tokens of {} bytes; the file was cut, or has "
          "another dtype",
          path, info.st_size, Name(options.dtype), width);
    }
    file->num_tokens_ = info.st_size / width;
    return file;
  }
  TRY(ReadAll(fd.get(), path, 0, start));
  const Result<NpyHeader> header = ParseNpyHeader(start);
  if (!header.ok()) return header.status().WithContext(path.string());
  const int64_t width = SizeBytes(header->dtype);
  const int64_t data_bytes = info.st_size - header->data_offset;
  if (header->num_elements > data_bytes / width || header->num_elements * width != data_bytes) {
    return DataLossError(
        "{}: the npy header announces {} elements of {} bytes, but {} bytes follow it; the file "
        "was "
        "cut or written by two programs",
        path, header->num_elements, width, data_bytes);
  }
  file->options_.dtype = header->dtype;
  file->data_offset_ = header->data_offset;
  file->num_tokens_ = header->num_elements;
  return file;
}

Result<FileDescriptor> TokenFile::Reopen() const {
  FileDescriptor fd = TRY(OpenToRead(path_));
  const Identity now = IdentityOf(TRY(StatOf(fd, path_)));
  if (now != identity_) {
    return DataLossError(
        "{}: replaced or changed while in use ({} bytes when opened, {} now); start "
        "again, or restore it",
        path_, identity_.size_bytes, now.size_bytes);
  }
  return fd;
}

Result<const std::byte*> TokenFile::Map() const {
  std::lock_guard lock(mutex_);
  if (const std::byte* data = data_.load()) return data;
  const FileDescriptor fd = TRY(Reopen());
  void* data = mmap(nullptr, static_cast<size_t>(size_bytes_), PROT_READ, MAP_SHARED, fd.get(), 0);
  // No address space or too many maps: the caller reads with system calls.
  if (data == MAP_FAILED) return static_cast<const std::byte*>(nullptr);
  data_.store(static_cast<const std::byte*>(data));
  return static_cast<const std::byte*>(data);
}

Status TokenFile::ReadUnmapped(int64_t offset, std::span<std::byte> bytes) const {
  int fd;
  {
    std::lock_guard lock(mutex_);
    if (!fd_.valid()) fd_ = TRY(Reopen());
    fd = fd_.get();
  }
  return ReadAll(fd, path_, offset, bytes);
}

Status TokenFile::ReadBytes(int64_t offset, std::span<std::byte> bytes) const {
  const auto size = static_cast<int64_t>(bytes.size());
  CHECK(offset >= 0 && offset <= size_bytes_ - size, "{}: bytes {}+{} of {}", path_, offset, size,
        size_bytes_);
  if (bytes.empty()) return Status();
  const std::byte* data = data_.load(std::memory_order_acquire);
  if (data == nullptr && options_.map) data = TRY(Map());
  if (data == nullptr) return ReadUnmapped(offset, bytes);
  std::memcpy(bytes.data(), data + offset, bytes.size());
  return Status();
}

void TokenFile::ReleaseResident() const {
  if (const std::byte* data = data_.load())
    madvise(const_cast<std::byte*>(data), static_cast<size_t>(size_bytes_), MADV_DONTNEED);
}

// Feeds `consume(elements, count)` with the elements in blocks, until it returns false.
template <class Element, class Consume>
Status TokenFile::ForBlocks(int64_t first, int64_t count, Consume consume) const {
  std::array<Element, kBlock> block;
  for (int64_t done = 0; done < count;) {
    const auto size = static_cast<size_t>(std::min<int64_t>(kBlock, count - done));
    TRY(ReadBytes(data_offset_ + (first + done) * static_cast<int64_t>(sizeof(Element)),
                  std::as_writable_bytes(std::span(block).first(size))));
    if (!consume(block.data(), size)) return Status();
    done += static_cast<int64_t>(size);
  }
  return Status();
}

Status TokenFile::OutsideVocabulary(int64_t first, std::span<const int32_t> tokens,
                                    uint64_t id) const {
  return DataLossError(
      "{}: token {} has id {}, but ids are below {}; the file is damaged, has another dtype than "
      "{}, "
      "or comes from another tokenizer",
      path_, first + static_cast<int64_t>(tokens.size()), id, limit_, Name(options_.dtype));
}

template <class Element>
Status TokenFile::ReadAs(int64_t first, std::span<int32_t> tokens) const {
  size_t done = 0;
  Status outside;
  const auto check = [&](const Element* elements, size_t size) {
    if (AllBelow(elements, size, limit_)) return true;
    size_t i = 0;
    while (AllBelow(elements + i, 1, limit_)) ++i;
    outside = OutsideVocabulary(first, tokens.first(done + i), static_cast<uint64_t>(elements[i]));
    return false;
  };
  if constexpr (sizeof(Element) == 4) {
    // The output is the input: one copy, then a look while it is in the cache.
    constexpr size_t kCopy = 16 * kBlock;
    while (done < tokens.size()) {
      const std::span<int32_t> copied = tokens.subspan(done, std::min(kCopy, tokens.size() - done));
      TRY(ReadBytes(data_offset_ + (first + static_cast<int64_t>(done)) * 4,
                    std::as_writable_bytes(copied)));
      for (size_t at = 0; at < copied.size(); at += kBlock) {
        const std::span<int32_t> block = copied.subspan(at, std::min(kBlock, copied.size() - at));
        if (!check(reinterpret_cast<const Element*>(block.data()), block.size())) return outside;
        done += block.size();
      }
    }
    return Status();
  }
  TRY(ForBlocks<Element>(first, static_cast<int64_t>(tokens.size()),
                         [&](const Element* elements, size_t size) {
                           if (!check(elements, size)) return false;
                           for (size_t i = 0; i < size; ++i)
                             tokens[done + i] = static_cast<int32_t>(elements[i]);
                           done += size;
                           return true;
                         }));
  return outside;
}

template <class Element>
Status TokenFile::ReadMaskAs(int64_t first, std::span<uint8_t> mask) const {
  size_t done = 0;
  return ForBlocks<Element>(first, static_cast<int64_t>(mask.size()),
                            [&](const Element* elements, size_t size) {
                              for (size_t i = 0; i < size; ++i)
                                mask[done + i] = elements[i] != 0 ? 1 : 0;
                              done += size;
                              return true;
                            });
}

Status TokenFile::Read(int64_t first, std::span<int32_t> tokens) const {
  CHECK(first >= 0 && first + static_cast<int64_t>(tokens.size()) <= num_tokens_,
        "{}: tokens {}+{} of {}", path_, first, tokens.size(), num_tokens_);
  return WithElement(options_.dtype,
                     [&](auto element) { return ReadAs<decltype(element)>(first, tokens); });
}

Status TokenFile::ReadMask(int64_t first, std::span<uint8_t> mask) const {
  CHECK(first >= 0 && first + static_cast<int64_t>(mask.size()) <= num_tokens_,
        "{}: elements {}+{} of {}", path_, first, mask.size(), num_tokens_);
  return WithElement(options_.dtype,
                     [&](auto element) { return ReadMaskAs<decltype(element)>(first, mask); });
}

}  // namespace ulmus::data
