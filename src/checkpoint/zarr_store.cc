#include "checkpoint/zarr_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/check.h"

namespace ulmus::checkpoint {
namespace {

constexpr size_t kMaxTransferBytes = size_t{1} << 30;  // Linux transfers at most 2 GiB per call
// Dirty pages are handed to the disk while writing goes on, so that the final sync is short.
constexpr int64_t kWritebackBytes = int64_t{8} << 20;
constexpr int kMaxDirectoryDepth = 64;

class LocalObjectReader : public ObjectReader {
 public:
  LocalObjectReader(Path path, FileDescriptor fd, int64_t size_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), size_bytes_(size_bytes) {}

  int64_t size_bytes() const override { return size_bytes_; }

  Status Read(int64_t offset, std::span<std::byte> out) const override {
    const int64_t count = TRY(ReadAt(fd_.get(), path_, offset, out));
    const auto wanted = static_cast<int64_t>(out.size());
    if (count < wanted)
      return DataLossError("{}: ends at byte {} of {}; the file was cut short", path_,
                           offset + count, offset + wanted);
    return Status();
  }

 private:
  Path path_;
  FileDescriptor fd_;
  int64_t size_bytes_;
};

}  // namespace

// --- Reading

Result<std::string> ReadStore::ReadText(const std::string& key, int64_t limit_bytes) const {
  const std::unique_ptr<ObjectReader> object = TRY(Open(key));
  if (object->size_bytes() > limit_bytes)
    return DataLossError("{}: {} bytes, more than the limit of {} for this kind of file",
                         Describe(key), object->size_bytes(), limit_bytes);
  std::string text(static_cast<size_t>(object->size_bytes()), '\0');
  TRY(object->Read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::string LocalReadStore::Describe(const std::string& key) const {
  return (root_ / key).string();
}

Result<std::unique_ptr<ObjectReader>> LocalReadStore::Open(const std::string& key) const {
  const Path path = root_ / key;
  // Not blocking: a pipe in place of a file must not stop the program before it is refused.
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return ErrnoError(errno, path, "open");
  struct stat info{};
  if (fstat(fd.get(), &info) != 0) return ErrnoError(errno, path, "stat");
  if (!S_ISREG(info.st_mode)) return DataLossError("{}: not a plain file", path);
  return std::make_unique<LocalObjectReader>(path, std::move(fd), info.st_size);
}

namespace {

Status ListInto(const Path& root, const std::string& prefix, int depth,
                std::map<std::string, int64_t>& files) {
  if (depth > kMaxDirectoryDepth)
    return DataLossError("{}: nested deeper than {} directories", root / prefix,
                         kMaxDirectoryDepth);
  for (const std::string& name : TRY(ListDirectory(root / prefix))) {
    const std::string key = prefix.empty() ? name : prefix + "/" + name;
    struct stat info{};
    if (lstat((root / key).c_str(), &info) != 0) return ErrnoError(errno, root / key, "stat");
    if (S_ISDIR(info.st_mode)) {
      TRY(ListInto(root, key, depth + 1, files));
    } else if (S_ISREG(info.st_mode)) {
      files.emplace(key, info.st_size);
    } else {
      return DataLossError("{}: neither a file nor a directory; copy the checkpoint without links",
                           root / key);
    }
  }
  return Status();
}

}  // namespace

Result<std::map<std::string, int64_t>> LocalReadStore::List() const {
  std::map<std::string, int64_t> files;
  TRY(ListInto(root_, "", 0, files));
  return files;
}

// --- Writing

Status WriteStore::WriteText(const std::string& key, std::string_view text) {
  const std::unique_ptr<ObjectWriter> object = TRY(Create(key));
  TRY(object->Write(text));
  return object->Close();
}

struct LocalWriteStore::Shared {
  LocalWriteOptions options;
  std::atomic<int64_t> written_bytes = 0;
  FileDescriptor root;  // opened before anything is written: syncfs reports errors since then
};

namespace {

class LocalObjectWriter : public ObjectWriter {
 public:
  LocalObjectWriter(Path path, FileDescriptor fd, std::shared_ptr<LocalWriteStore::Shared> shared)
      : path_(std::move(path)), fd_(std::move(fd)), shared_(std::move(shared)) {}

  Status Write(std::span<const std::byte> bytes) override {
    CHECK(fd_.valid(), "{}: written after Close", path_);
    while (!bytes.empty()) {
      const ssize_t count =
          write(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxTransferBytes));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failure(errno, "write", static_cast<int64_t>(bytes.size()));
      bytes = bytes.subspan(static_cast<size_t>(count));
      size_bytes_ += count;
      shared_->written_bytes += count;
    }
    StartWriteback();
    return Status();
  }

  Status Close() override {
    CHECK(fd_.valid(), "{}: closed twice", path_);
    if (const int error = fd_.Close(); error != 0) return Failure(error, "close", 0);
    return Status();
  }

 private:
  void StartWriteback() {
    if (!shared_->options.sync || size_bytes_ - flushed_bytes_ < kWritebackBytes) return;
    // A hint: where the file system has no such call, the sync in Close() does all the work.
    sync_file_range(fd_.get(), flushed_bytes_, size_bytes_ - flushed_bytes_, SYNC_FILE_RANGE_WRITE);
    flushed_bytes_ = size_bytes_;
  }

  // A full disk is told with the bytes that are needed and free.
  Status Failure(int error, std::string_view action, int64_t pending_bytes) const {
    Status status = ErrnoError(error, path_, action);
    if (status.code() != StatusCode::kResourceExhausted) return status;
    const Result<int64_t> free_bytes = FreeDiskBytes(path_.parent_path());
    const int64_t rest = shared_->options.expected_bytes - shared_->written_bytes;
    return ResourceExhaustedError("{} (needed {} more bytes, {} free)", status.message(),
                                  std::max(rest, pending_bytes),
                                  free_bytes.ok() ? std::to_string(*free_bytes) : "unknown");
  }

  Path path_;
  FileDescriptor fd_;
  std::shared_ptr<LocalWriteStore::Shared> shared_;
  int64_t size_bytes_ = 0;
  int64_t flushed_bytes_ = 0;
};

}  // namespace

LocalWriteStore::LocalWriteStore(Path root, LocalWriteOptions options)
    : root_(std::move(root)), shared_(std::make_shared<Shared>()) {
  shared_->options = options;
  shared_->root = FileDescriptor(open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

std::string LocalWriteStore::Describe(const std::string& key) const {
  return (root_ / key).string();
}

Result<std::unique_ptr<ObjectWriter>> LocalWriteStore::Create(const std::string& key) {
  const Path path = root_ / key;
  TRY(CreateDirectories(path.parent_path()));
  FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError(errno, path, "create");
  return std::make_unique<LocalObjectWriter>(path, std::move(fd), shared_);
}

Status LocalWriteStore::Sync() {
  if (!shared_->options.sync) return Status();
  if (!shared_->root.valid()) return NotFoundError("{}: cannot be opened to sync it", root_);
  if (syncfs(shared_->root.get()) != 0) return ErrnoError(errno, root_, "sync");
  return Status();
}

}  // namespace ulmus::checkpoint
