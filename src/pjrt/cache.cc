#include "pjrt/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>  // rename
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "pjrt/cache_entry.h"

namespace ulmus::pjrt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntrySuffix = ".executable";
constexpr std::string_view kTemporarySuffix = ".tmp";
// A writer that died leaves its temporary file; nobody writes for an hour.
constexpr auto kTemporaryLifetime = std::chrono::hours(1);
constexpr int64_t kMaxHashRecordBytes = 16 << 10;

// With its length before it, so that no two lists of fields give the same bytes.
void AddField(Sha256& hash, std::string_view bytes) {
  hash.Update(fmt::format("{}:", bytes.size()));
  hash.Update(bytes);
}

class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_;
};

std::string Errno() { return std::strerror(errno); }

// Up to `count` bytes into `target`; fewer only at the end of the file, -1 on an error.
int64_t ReadFully(int fd, char* target, int64_t count) {
  int64_t done = 0;
  while (done < count) {
    const ssize_t n = read(fd, target + done, static_cast<size_t>(count - done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += n;
  }
  return done;
}

Status WriteFully(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return UnavailableError("{}", Errno());
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

// kNotFound if there is none; kDataLoss if it is larger than `max_bytes`.
Result<std::string> ReadBounded(const std::string& path, int64_t max_bytes) {
  // Not blocking: opening a pipe of that name would wait for its other end.
  const File file(path, O_RDONLY | O_NONBLOCK);
  if (!file.ok()) {
    if (errno == ENOENT) return NotFoundError("{}", path);
    return UnavailableError("{}", Errno());
  }
  struct stat info{};
  if (fstat(file.fd(), &info) != 0) return UnavailableError("{}", Errno());
  if (!S_ISREG(info.st_mode)) return DataLossError("not a regular file");
  if (info.st_size > max_bytes)
    return DataLossError("{} bytes, more than the limit of {}", info.st_size, max_bytes);
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  const int64_t read = ReadFully(file.fd(), bytes.data(), info.st_size);
  if (read < 0) return UnavailableError("{}", Errno());
  bytes.resize(static_cast<size_t>(read));
  return bytes;
}

// Readers see the old file or the whole new one. Not synced: after a power cut an entry may be
// damaged, which Load detects.
Status WriteAtomically(const std::string& path, std::string_view head, std::string_view body) {
  static std::atomic<uint64_t> counter{0};
  const std::string temporary =
      fmt::format("{}.{}.{}{}", path, getpid(), counter++, kTemporarySuffix);
  Status status;
  {
    const File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (!file.ok()) return UnavailableError("{}", Errno());
    status = WriteFully(file.fd(), head);
    if (status.ok()) status = WriteFully(file.fd(), body);
  }
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0)
    status = UnavailableError("{}", Errno());
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

Result<std::string> HashFile(const std::string& path) {
  const File file(path, O_RDONLY);
  if (!file.ok()) return NotFoundError("{}: {}", path, Errno());
  Sha256 hash;
  std::vector<char> block(1 << 20);
  while (true) {
    const int64_t n = ReadFully(file.fd(), block.data(), static_cast<int64_t>(block.size()));
    if (n < 0) return UnavailableError("{}: {}", path, Errno());
    if (n == 0) return hash.hex();
    hash.Update(std::string_view(block.data(), static_cast<size_t>(n)));
  }
}

}  // namespace

std::string DefaultCacheDirectory() {
  const Path cache = UserCacheDirectory();
  return cache.empty() ? "" : (cache / "executables").string();
}

std::string CacheKey(const CacheKeyParts& parts) {
  Sha256 hash;
  AddField(hash, "ulmus executable 1");
  AddField(hash, parts.plugin_hash);
  AddField(hash, fmt::format("{}.{}", parts.api_major, parts.api_minor));
  AddField(hash, parts.machine);
  AddField(hash, parts.platform_version);
  AddField(hash, parts.compile_options);
  AddField(hash, std::to_string(parts.environment.size()));
  for (const auto& [name, value] : parts.environment) {
    AddField(hash, name);
    AddField(hash, value);
  }
  AddField(hash, std::to_string(parts.custom_calls.size()));
  for (const auto& [target, version] : parts.custom_calls) {
    AddField(hash, target);
    AddField(hash, std::to_string(version));
  }
  AddField(hash, parts.program);
  return hash.hex();
}

std::string CpuDescription() {
  // x86 and ARM spellings; one processor stands for all.
  std::string description;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line) && !line.empty();) {
    for (const char* field : {"vendor_id", "cpu family", "model\t", "model name", "stepping",
                              "flags", "CPU implementer", "CPU part", "CPU variant", "Features"}) {
      if (line.starts_with(field)) description += line + "\n";
    }
  }
  return description;
}

std::map<std::string, std::string> CompilerEnvironment() {
  std::map<std::string, std::string> environment;
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS", "PJRT_NPROC", "NPROC"}) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  return environment;
}

CompilationCache::CompilationCache(CacheOptions options) : options_(std::move(options)) {
  if (options_.directory.empty()) options_.directory = DefaultCacheDirectory();
  if (options_.directory.empty()) Log("no cache: neither XDG_CACHE_HOME nor HOME is set");
}

void CompilationCache::Log(std::string_view line, LogLevel level) const {
  if (options_.log) return options_.log(line);
  ulmus::Log(level, "executable cache: {}", line);
}

std::string CompilationCache::EntryPath(const std::string& key) const {
  return fmt::format("{}/{}{}", options_.directory, key, kEntrySuffix);
}

std::optional<std::string> CompilationCache::Load(const std::string& key) {
  if (options_.directory.empty()) return std::nullopt;
  const std::string path = EntryPath(key);
  const int64_t max_bytes = options_.max_bytes + static_cast<int64_t>(kCacheHeaderBytes);
  Result<std::string> entry = ReadBounded(path, max_bytes);
  if (!entry.ok() && entry.error().code() == StatusCode::kNotFound) return std::nullopt;
  if (!entry.ok() && entry.error().code() == StatusCode::kUnavailable) {
    Log(fmt::format("{} cannot be read ({}); compiling instead", path, entry.error().message()));
    return std::nullopt;
  }
  if (!entry.ok()) {
    Reject(key, entry.error().message());
    return std::nullopt;
  }
  const Result<std::string_view> payload = DecodeCacheEntry(key, *entry);
  if (!payload.ok()) {
    Reject(key, payload.error().message());
    return std::nullopt;
  }
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // now: eviction takes the oldest
  entry->erase(0, kCacheHeaderBytes);
  return std::move(*entry);
}

void CompilationCache::Reject(const std::string& key, std::string_view reason) {
  const std::string path = EntryPath(key);
  std::error_code error;
  fs::remove_all(path, error);
  Log(fmt::format("{} is not usable: {}; {}, compiling again", path, reason,
                  error ? "it cannot be deleted" : "deleted"));
}

void CompilationCache::Bypass(std::string_view name, std::string_view reason) const {
  Log(fmt::format("not used for {}: {}; compiling it", name, reason), LogLevel::kInfo);
}

void CompilationCache::Store(const std::string& key, std::string_view payload) {
  if (options_.directory.empty()) return;
  if (static_cast<int64_t>(payload.size()) > options_.max_bytes) {
    return Log(
        fmt::format("an executable of {} bytes is larger than the cache's limit of {}; not stored",
                    payload.size(), options_.max_bytes));
  }
  std::error_code error;
  fs::create_directories(options_.directory, error);
  if (error)
    return Log(fmt::format("folder {} cannot be made ({}); not stored", options_.directory,
                           error.message()));
  const std::string entry = EncodeCacheEntry(key, payload);
  const Status written = WriteAtomically(EntryPath(key), entry, "");
  if (!written.ok())
    return Log(
        fmt::format("{} cannot be written ({}); not stored", EntryPath(key), written.message()));
  Evict();
}

void CompilationCache::Evict() {
  struct Entry {
    fs::file_time_type used;
    int64_t size_bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(options_.directory, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;  // another process may delete files while we look
    const std::string name = it->path().filename();
    const auto used = it->last_write_time(ignored);
    if (ignored) continue;
    if (name.ends_with(kTemporarySuffix) && now - used > kTemporaryLifetime)
      fs::remove(it->path(), ignored);
    if (!name.ends_with(kEntrySuffix)) continue;
    const auto size = static_cast<int64_t>(it->file_size(ignored));
    if (ignored) continue;
    entries.push_back({used, size, it->path()});
    total += size;
  }
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (total <= options_.max_bytes) break;
    std::error_code ignored;
    fs::remove(entry.path, ignored);
    total -= entry.size_bytes;
  }
}

Result<std::string> CompilationCache::PluginHash(const std::string& path) {
  struct stat info{};
  if (stat(path.c_str(), &info) != 0) return NotFoundError("{}: {}", path, Errno());
  // Change time too: unpacked wheels may carry the same, constant modification time in every
  // version.
  const std::string identity = fmt::format(
      "ulmus plugin hash 1\n{}\n{} {}.{:09} {}.{:09} {}\n", path, info.st_size, info.st_mtim.tv_sec,
      info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec, info.st_ino);
  if (options_.directory.empty()) return HashFile(path);
  const std::string folder = options_.directory + "/plugins";
  const std::string record = fmt::format("{}/{}", folder, Sha256Hex(path));
  constexpr size_t kHexDigits = 64;
  if (const Result<std::string> known = ReadBounded(record, kMaxHashRecordBytes);
      known.ok() && known->size() == identity.size() + kHexDigits && known->starts_with(identity)) {
    return known->substr(identity.size());
  }
  std::string hash = TRY(HashFile(path));
  std::error_code error;
  fs::create_directories(folder, error);
  // Unwritable: Store will say so.
  if (!error) (void)WriteAtomically(record, identity, hash);
  return hash;
}

}  // namespace ulmus::pjrt
