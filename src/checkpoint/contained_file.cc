#include "checkpoint/contained_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/check.h"

namespace ulmus::checkpoint {
namespace {

constexpr size_t kMaxQuotedBytes = 200;
constexpr size_t kMaxNameBytes = 255;  // NAME_MAX of Linux file systems

bool IsUtf8(std::string_view text) {
  // A value that does not dump strictly holds broken UTF-8; `replace` marks each fault.
  const std::string dumped =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
  return dumped ==
         nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsInside(const Path& path, const Path& folder) {
  const auto [end, ignored] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// The blobs folder beside snapshots/<revision>, or empty if the folder is no such snapshot.
Path CacheBlobs(const Path& folder) {
  const Path snapshots = folder.parent_path();
  if (snapshots.filename() != "snapshots") return {};
  return snapshots.parent_path() / "blobs";
}

Result<Path> Canonical(const Path& path) {
  std::error_code error;
  Path result = std::filesystem::canonical(path, error);
  if (error) return ErrnoError(error.value(), path, "follow");
  return result;
}

}  // namespace

std::string Quoted(std::string_view name) {
  const bool cut = name.size() > kMaxQuotedBytes;
  std::string text =
      nlohmann::json(name.substr(0, kMaxQuotedBytes))
          .dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  // JSON leaves DEL as it is; a terminal does not.
  for (size_t at; (at = text.find('\x7f')) != std::string::npos;) text.replace(at, 1, "\\u007f");
  return cut ? text + "..." : text;
}

Status CheckBaseName(std::string_view name) {
  const auto refuse = [&](std::string_view reason) {
    return DataLossError(
        "file name {}: {}; only plain names of files in the same folder are followed", Quoted(name),
        reason);
  };
  if (name.empty()) return refuse("is empty");
  if (name.size() > kMaxNameBytes) return refuse("is longer than 255 bytes");
  if (name == "." || name == "..") return refuse("names a folder");
  for (char c : name) {
    if (c == '/' || c == '\\') return refuse("holds a path separator");
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return refuse("holds a control character");
  }
  if (!IsUtf8(name)) return refuse("is not UTF-8");
  return Status();
}

Result<Path> ResolveInside(const Path& folder, std::string_view name) {
  TRY(CheckBaseName(name));
  Path path = folder / name;
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return ErrnoError(errno, path, "find");
  if (S_ISLNK(info.st_mode)) {
    const Path target = TRY(Canonical(path));
    const Path home = TRY(Canonical(folder));
    const Path blobs = CacheBlobs(home);
    if (!IsInside(target, home) && (blobs.empty() || target.parent_path() != blobs)) {
      return DataLossError(
          "{}: a symbolic link that leads out of its folder, to {}; copy the file into the folder "
          "if it is meant",
          path, Quoted(target.string()));
    }
    path = target;
    if (lstat(path.c_str(), &info) != 0) return ErrnoError(errno, path, "find");
  }
  if (!S_ISREG(info.st_mode)) return DataLossError("{}: not a regular file", path);
  return path;
}

Result<RandomAccessFile> RandomAccessFile::Open(const Path& path) {
  int fd;
  do {
    // O_NONBLOCK: opening a pipe would wait for its writer.
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoError(errno, path, "open");
  FileDescriptor descriptor(fd);
  struct stat info{};
  if (fstat(fd, &info) != 0) return ErrnoError(errno, path, "stat");
  if (S_ISDIR(info.st_mode)) return ErrnoError(EISDIR, path, "read");
  if (!S_ISREG(info.st_mode)) return DataLossError("{}: not a regular file", path);
  return RandomAccessFile(path, std::move(descriptor), static_cast<int64_t>(info.st_size));
}

Status RandomAccessFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  CHECK(offset >= 0, "{}: read at {}", path_, offset);
  const int64_t count = TRY(ulmus::ReadAt(fd_.get(), path_, offset, out));
  const auto wanted = static_cast<int64_t>(out.size());
  if (count < wanted) {
    return DataLossError(
        "{}: ends at byte {}, {} bytes early; it was cut while in use, copy it again", path_,
        offset + count, wanted - count);
  }
  return Status();
}

Result<std::string> ReadFileInside(const Path& folder, std::string_view name, int64_t limit_bytes) {
  const Path path = TRY(ResolveInside(folder, name));
  const RandomAccessFile file = TRY(RandomAccessFile::Open(path));
  if (file.size_bytes() > limit_bytes) {
    return OutOfRangeError("{}: {} bytes, more than the {} that a file of this kind may have", path,
                           file.size_bytes(), limit_bytes);
  }
  std::string text(static_cast<size_t>(file.size_bytes()), '\0');
  TRY(file.ReadAt(0, std::as_writable_bytes(std::span<char>(text))));
  return text;
}

}  // namespace ulmus::checkpoint
