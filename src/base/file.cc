#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <system_error>

#include "base/check.h"

namespace ulmus {
namespace {

// One read or write call moves at most this much: Linux cuts at 2 GiB anyway.
constexpr size_t kMaxTransferBytes = size_t{1} << 30;

struct ErrnoMeaning {
  int error;
  StatusCode code;
  const char* remedy;
};

constexpr ErrnoMeaning kErrnoMeanings[] = {
    {ENOENT, StatusCode::kNotFound, "check the spelling, and that the file system is mounted"},
    {EACCES, StatusCode::kPermissionDenied,
     "check owner and mode of the file and of every directory above it"},
    {EPERM, StatusCode::kPermissionDenied, "check owner and mode of the file"},
    {EROFS, StatusCode::kPermissionDenied,
     "the file system is read-only: choose another directory"},
    {EEXIST, StatusCode::kAlreadyExists, "remove it or choose another name"},
    {ENOSPC, StatusCode::kResourceExhausted, "free space or choose another file system"},
    {EDQUOT, StatusCode::kResourceExhausted, "the quota is used up: remove files or ask for more"},
    {EFBIG, StatusCode::kResourceExhausted,
     "raise the file size limit (`ulimit -f`) or choose another file system"},
    {ENOMEM, StatusCode::kResourceExhausted,
     "free memory, or raise vm.max_map_count if many files are mapped"},
    {EMFILE, StatusCode::kResourceExhausted, "raise the limit of open files (`ulimit -n`)"},
    {ENFILE, StatusCode::kResourceExhausted, "the machine's limit of open files is reached"},
    {EIO, StatusCode::kDataLoss,
     "the device or the network file system failed: look at the kernel log"},
    {EAGAIN, StatusCode::kUnavailable, "try again"},
    {ESTALE, StatusCode::kUnavailable,
     "the network file system lost the file: try again or mount it anew"},
    {ETIMEDOUT, StatusCode::kUnavailable, "the network file system does not answer: try again"},
    {ENOTDIR, StatusCode::kFailedPrecondition, "a part of the path is a file, not a directory"},
    {EISDIR, StatusCode::kFailedPrecondition, "this is a directory: name a file"},
    {ENOTEMPTY, StatusCode::kFailedPrecondition, "the directory is not empty"},
    {EBUSY, StatusCode::kFailedPrecondition, "something else uses it"},
    {ELOOP, StatusCode::kFailedPrecondition, "symbolic links go round in a circle"},
    {ENAMETOOLONG, StatusCode::kInvalidArgument, "choose a shorter name"},
};

std::string SystemText(int error) { return std::generic_category().message(error); }

Path DirectoryOf(const Path& path) {
  return path.has_parent_path() ? path.parent_path() : Path(".");
}

Result<FileDescriptor> OpenDescriptor(const Path& path, int flags, std::string_view action) {
  // An embedded NUL would silently name another file.
  if (path.native().find('\0') != std::string::npos)
    return InvalidArgumentError("{}: path holds a NUL byte", path);
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, 0666);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoError(errno, path, action);
  return FileDescriptor(fd);
}

Result<struct stat> StatOf(const FileDescriptor& fd, const Path& path) {
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return ErrnoError(errno, path, "stat");
  if (S_ISDIR(info.st_mode)) return ErrnoError(EISDIR, path, "read");
  return info;
}

// Adds needed and free bytes to a full-disk error.
Status WithSpace(Status status, const Path& path, size_t needed_bytes) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  const Result<int64_t> free_bytes = FreeDiskBytes(DirectoryOf(path));
  return ResourceExhaustedError("{} (needed {} more bytes, {} free)", status.message(),
                                needed_bytes,
                                free_bytes.ok() ? std::to_string(*free_bytes) : "unknown");
}

Status SyncDescriptor(const FileDescriptor& fd, const Path& path) {
  if (fsync(fd.get()) != 0) return WithSpace(ErrnoError(errno, path, "sync"), path, 0);
  return Status();
}

// Bytes from the current position on, at most `limit`.
Result<std::string> ReadUpTo(const FileDescriptor& fd, const Path& path, size_t limit,
                             size_t expected) {
  std::string text;
  text.resize(std::min(limit, expected));
  size_t size = 0;
  while (true) {
    if (size == text.size()) {
      if (size == limit) break;
      text.resize(std::min(
          limit, std::max<size_t>(4096, 2 * size)));  // grew, or a pipe or /proc without a size
    }
    const ssize_t count =
        read(fd.get(), text.data() + size, std::min(text.size() - size, kMaxTransferBytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, path, "read");
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  text.resize(size);
  return text;
}

}  // namespace

Status ErrnoError(int error, const Path& path, std::string_view action) {
  for (const ErrnoMeaning& meaning : kErrnoMeanings) {
    if (meaning.error == error)
      return {meaning.code, fmt::format("{}: cannot {}: {}; {}", path, action, SystemText(error),
                                        meaning.remedy)};
  }
  return UnknownError("{}: cannot {}: {} (errno {})", path, action, SystemText(error), error);
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

int FileDescriptor::Close() {
  if (fd_ < 0) return 0;
  // Linux frees the descriptor even when close() is interrupted: never close twice.
  const int result = close(std::exchange(fd_, -1));
  return result != 0 && errno != EINTR ? errno : 0;
}

Result<std::string> ReadFile(const Path& path, int64_t limit_bytes) {
  CHECK(limit_bytes >= 0, "limit of {} bytes", limit_bytes);
  const FileDescriptor fd = TRY(OpenDescriptor(path, O_RDONLY, "open"));
  const struct stat info = TRY(StatOf(fd, path));
  const auto limit = static_cast<size_t>(limit_bytes);
  // One byte beyond the limit and the size tells growth from the end of the file.
  std::string text = TRY(ReadUpTo(fd, path, limit + 1, static_cast<size_t>(info.st_size) + 1));
  if (text.size() > limit) {
    return OutOfRangeError(
        "{}: larger than the limit of {} bytes for this kind of file; check that it is the right "
        "file",
        path, limit_bytes);
  }
  return text;
}

Result<int64_t> ReadAt(int fd, const Path& path, int64_t offset, std::span<std::byte> out,
                       std::string_view action) {
  int64_t done = 0;
  while (!out.empty()) {
    const ssize_t count =
        pread(fd, out.data(), std::min(out.size(), kMaxTransferBytes), offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoError(errno, path, action);
    if (count == 0) break;
    out = out.subspan(static_cast<size_t>(count));
    done += count;
  }
  return done;
}

Result<MappedFile> MappedFile::Open(const Path& path) {
  // Not blocking: opening a pipe would wait for its other end.
  const FileDescriptor fd = TRY(OpenDescriptor(path, O_RDONLY | O_NONBLOCK, "open"));
  const struct stat info = TRY(StatOf(fd, path));
  if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode) || S_ISSOCK(info.st_mode)) {
    return FailedPreconditionError(
        "{}: a pipe or device cannot be mapped; write its bytes to a file first", path);
  }
  MappedFile file;
  file.path_ = path;
  file.size_bytes_ = static_cast<int64_t>(info.st_size);
  if (file.size_bytes_ == 0) return file;
  void* data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    file.size_bytes_ = 0;
    return ErrnoError(errno, path, fmt::format("map {} bytes", info.st_size));
  }
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_bytes_));
}

AtomicFile::AtomicFile(Path path, Path temp, FileDescriptor fd)
    : path_(std::move(path)), temp_(std::move(temp)), fd_(std::move(fd)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temp_(std::exchange(other.temp_, Path())),
      fd_(std::move(other.fd_)) {}

AtomicFile::~AtomicFile() {
  if (!temp_.empty()) unlink(temp_.c_str());
}

Result<AtomicFile> AtomicFile::Create(const Path& path) {
  static std::atomic<int64_t> counter = 0;  // two threads of one process may write one path
  Path temp = path;
  temp += fmt::format(".tmp-{}-{}", getpid(), counter.fetch_add(1));
  // A leftover of a dead process with our pid is overwritten; nobody else writes that name.
  FileDescriptor fd = TRY(OpenDescriptor(temp, O_WRONLY | O_CREAT | O_TRUNC, "create"));
  return AtomicFile(path, std::move(temp), std::move(fd));
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  CHECK(fd_.valid(), "{}: written after Commit", path_);
  while (!bytes.empty()) {
    const ssize_t count = write(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxTransferBytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return WithSpace(ErrnoError(errno, path_, "write"), path_, bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return Status();
}

Status AtomicFile::Commit() {
  CHECK(fd_.valid(), "{}: committed twice", path_);
  TRY(SyncDescriptor(fd_, path_));
  if (const int error = fd_.Close(); error != 0)
    return WithSpace(ErrnoError(error, path_, "write"), path_, 0);
  TRY(Rename(temp_, path_));
  temp_.clear();
  return Status();
}

Status WriteFileAtomic(const Path& path, std::span<const std::byte> bytes) {
  AtomicFile file = TRY(AtomicFile::Create(path));
  TRY(file.Write(bytes));
  return file.Commit();
}

Status WriteFileAtomic(const Path& path, std::string_view text) {
  return WriteFileAtomic(path, std::as_bytes(std::span<const char>(text.data(), text.size())));
}

Result<std::vector<std::string>> ListDirectory(const Path& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  if (directory == nullptr) return ErrnoError(errno, path, "list");
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return ErrnoError(errno, path, "list");
  std::sort(names.begin(), names.end());
  return names;
}

Status CreateDirectories(const Path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoError(error.value(), path, "create directory");
  return Status();
}

Result<bool> PathExists(const Path& path) {
  struct stat info{};
  if (lstat(path.c_str(), &info) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return ErrnoError(errno, path, "stat");
}

Result<int64_t> FileSizeBytes(const Path& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return ErrnoError(errno, path, "stat");
  if (S_ISDIR(info.st_mode)) return ErrnoError(EISDIR, path, "take the size");
  return static_cast<int64_t>(info.st_size);
}

Status Rename(const Path& from, const Path& to) {
  if (rename(from.c_str(), to.c_str()) != 0)
    return ErrnoError(errno, to, fmt::format("rename {} to it", from));
  TRY(SyncDirectory(DirectoryOf(to)));
  if (DirectoryOf(from) != DirectoryOf(to)) TRY(SyncDirectory(DirectoryOf(from)));
  return Status();
}

Status RemoveFile(const Path& path) {
  if (unlink(path.c_str()) != 0) return ErrnoError(errno, path, "remove");
  return Status();
}

Status RemoveTree(const Path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return ErrnoError(error.value(), path, "remove");
  return Status();
}

Status SyncDirectory(const Path& path) {
  const FileDescriptor fd = TRY(OpenDescriptor(path, O_RDONLY | O_DIRECTORY, "open directory"));
  // Some network file systems do not sync directories and say EINVAL.
  if (fsync(fd.get()) != 0 && errno != EINVAL) return ErrnoError(errno, path, "sync directory");
  return Status();
}

Result<int64_t> FreeDiskBytes(const Path& path) {
  struct statvfs info{};
  if (statvfs(path.c_str(), &info) != 0) return ErrnoError(errno, path, "ask for free space");
  return static_cast<int64_t>(info.f_bavail * info.f_frsize);
}

Path UserCacheDirectory() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return Path(value == nullptr ? "" : value);
  };
  if (const Path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "ulmus";
  if (const Path home = variable("HOME"); !home.empty()) return home / ".cache" / "ulmus";
  return {};
}

namespace {

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// Why a lock cannot be had, from the "pid host" its holder left.
Status HeldBy(const Path& path, const std::string& owner) {
  int pid = 0;
  std::string host;
  if (std::istringstream words(owner); !(words >> pid >> host))
    return FailedPreconditionError(
        "{}: locked by another process; stop it or use another directory", path);
  if (host == HostName() && kill(pid, 0) != 0 && errno == ESRCH) {
    return FailedPreconditionError(
        "{}: locked, but its owner, process {} on {}, is gone: a child of it lives on, or a "
        "network file system kept a dead "
        "lock; stop the child, or remove the file if no process uses this directory",
        path, pid, host);
  }
  return FailedPreconditionError(
      "{}: locked by process {} on {}; stop that process or use another directory", path, pid,
      host);
}

}  // namespace

Result<FileLock> FileLock::Acquire(const Path& path) {
  FileDescriptor fd = TRY(OpenDescriptor(path, O_RDWR | O_CREAT, "open lock"));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoError(errno, path, "lock");
    return HeldBy(path, TRY(ReadUpTo(fd, path, 512, 512)));
  }
  const std::string owner = fmt::format("{} {}\n", getpid(), HostName());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size()))
    return WithSpace(ErrnoError(errno, path, "write lock"), path, owner.size());
  return FileLock(std::move(fd));
}

FileLock::~FileLock() {
  // The name of a past owner would mislead; closing frees the lock.
  if (fd_.valid() && ftruncate(fd_.get(), 0) != 0) fd_.Close();
}

TempDir::TempDir() {
  const char* parent = std::getenv("TMPDIR");
  std::string pattern = (Path(parent != nullptr ? parent : "/tmp") / "ulmus-XXXXXX").string();
  CHECK(mkdtemp(pattern.data()) != nullptr, "{}: {}", pattern, SystemText(errno));
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ulmus
