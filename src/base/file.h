// Local files: whole reads, atomic writes, maps, locks, directories. Errors name the path, the
// system's reason and what to do. Paths are plain text to callers, so that an object store
// ("gs://bucket/key") can be added behind these functions.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

// Paths print as they are, without quotes.
template <>
struct fmt::formatter<std::filesystem::path> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const std::filesystem::path& path, Context& context) const {
    return fmt::formatter<std::string>::format(path.string(), context);
  }
};

namespace ulmus {

using Path = std::filesystem::path;

// A Status for a failed system call: "<path>: cannot <action>: <strerror>; <remedy>". ENOENT
// becomes kNotFound, EACCES and kin kPermissionDenied, EEXIST kAlreadyExists, ENOSPC, EDQUOT,
// EFBIG, ENOMEM and EMFILE kResourceExhausted, EIO kDataLoss, EAGAIN, ESTALE and ETIMEDOUT
// kUnavailable, ENOTDIR, EISDIR, ENOTEMPTY and EBUSY kFailedPrecondition, the rest kUnknown.
Status ErrnoError(int error, const Path& path, std::string_view action);

// One open file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { Close(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  // Returns errno of close(), which may report a write that failed late; 0 if fine or not open.
  int Close();

 private:
  int fd_ = -1;
};

// --- Reading

inline constexpr int64_t kDefaultReadLimitBytes = int64_t{64} << 20;

// The whole file. kOutOfRange if it is larger than `limit_bytes`: nothing of that size is read by
// mistake.
Result<std::string> ReadFile(const Path& path, int64_t limit_bytes = kDefaultReadLimitBytes);

// Bytes of an open file from `offset` on, for modules that hold descriptors of their own. Returns
// how many: fewer than asked for only where the file ends. `path` and `action` are for the message.
Result<int64_t> ReadAt(int fd, const Path& path, int64_t offset, std::span<std::byte> out,
                       std::string_view action = "read");

// A file's bytes mapped read-only. The file must not be truncated while mapped (SIGBUS); ours are
// only ever replaced.
class MappedFile {
 public:
  static Result<MappedFile> Open(const Path& path);
  MappedFile() = default;  // empty
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  int64_t size_bytes() const { return size_bytes_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_bytes_)}; }
  const Path& path() const { return path_; }

 private:
  const std::byte* data_ = nullptr;  // null when the file is empty: mmap refuses length 0
  int64_t size_bytes_ = 0;
  Path path_;
};

// --- Writing

// A file that appears under its name complete or not at all, whatever dies when. Bytes go to a
// temporary file in the same directory; Commit() syncs it, renames it and syncs the directory.
// Without Commit() the temporary is removed. A full disk is kResourceExhausted with the bytes
// needed and free.
class AtomicFile {
 public:
  static Result<AtomicFile> Create(const Path& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view text) {
    return Write(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  Status Commit();

 private:
  AtomicFile(Path path, Path temp, FileDescriptor fd);
  Path path_;
  Path temp_;  // empty once committed or moved from
  FileDescriptor fd_;
};

// AtomicFile in one call. Two writers of one path do not mix; the last to finish wins.
Status WriteFileAtomic(const Path& path, std::span<const std::byte> bytes);
Status WriteFileAtomic(const Path& path, std::string_view text);

// --- Directories

// Names in a directory, sorted bytewise: the same order on every file system.
Result<std::vector<std::string>> ListDirectory(const Path& path);
// With parents; fine if it exists.
Status CreateDirectories(const Path& path);
// False if nothing has that name; an error if that cannot be found out.
Result<bool> PathExists(const Path& path);
Result<int64_t> FileSizeBytes(const Path& path);
// Replaces `to`; both on one file system. Durable once this returns.
Status Rename(const Path& from, const Path& to);
// kNotFound if there is none.
Status RemoveFile(const Path& path);
// The directory and all below it; fine if there is none. Links are removed, not followed.
Status RemoveTree(const Path& path);
// Makes names created, renamed or removed in the directory durable.
Status SyncDirectory(const Path& path);
// Bytes that this user may still write to the file system that holds `path`.
Result<int64_t> FreeDiskBytes(const Path& path);

// Where a user's programs keep what can be made again: $XDG_CACHE_HOME/ulmus, else ~/.cache/ulmus;
// empty if neither variable is set.
Path UserCacheDirectory();

// An exclusive lock on a file among processes, held until the object dies or the process does,
// however it dies. The file holds "pid host" of the owner for messages; it is not removed, as
// removing would race with the next owner.
class FileLock {
 public:
  // kFailedPrecondition names the holder if another process, or this one, has it.
  static Result<FileLock> Acquire(const Path& path);
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;
  ~FileLock();

 private:
  explicit FileLock(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

// A fresh directory below $TMPDIR (or /tmp), removed with its content at the end of the object's
// life. For tests.
class TempDir {
 public:
  TempDir();  // CHECKs that it can be made
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const Path& path() const { return path_; }

 private:
  Path path_;
};

}  // namespace ulmus
