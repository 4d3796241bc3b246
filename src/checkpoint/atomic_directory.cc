#include "checkpoint/atomic_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace ulmus::checkpoint {
namespace {

Result<FileDescriptor> Lock(const Path& directory) {
  FileDescriptor fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, directory, "open");
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoError(errno, directory, "lock");
    return FailedPreconditionError("{}: another process is writing it; wait for it or stop it",
                                   directory);
  }
  return fd;
}

Status MakeDirectory(const Path& path) {
  if (mkdir(path.c_str(), 0777) != 0) return ErrnoError(errno, path, "create directory");
  return Status();
}

Path WithSuffix(Path path, std::string_view suffix) {
  path += suffix;
  return path;
}

// Swaps the two, or moves the old one aside where the file system cannot swap.
Status Replace(const Path& from, const Path& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    TRY(SyncDirectory(to.has_parent_path() ? to.parent_path() : Path(".")));
    return RemoveTree(from);
  }
  if (errno != EINVAL && errno != ENOSYS) return ErrnoError(errno, to, "replace");
  const Path old = WithSuffix(to, kReplacedSuffix);
  TRY(RemoveTree(old));
  TRY(Rename(to, old));
  TRY(Rename(from, to));
  return RemoveTree(old);
}

}  // namespace

Status ClearLeftovers(const Path& path) {
  const Path temp = WithSuffix(path, kIncompleteSuffix), old = WithSuffix(path, kReplacedSuffix);
  FileDescriptor lock;
  if (TRY(PathExists(temp))) lock = TRY(Lock(temp));  // nobody's: its writer is dead
  if (TRY(PathExists(old))) {
    const bool replaced = TRY(PathExists(path));
    TRY(replaced ? RemoveTree(old) : Rename(old, path));
  }
  return lock.valid() ? RemoveTree(temp) : Status();
}

Result<AtomicDirectory> AtomicDirectory::Create(const Path& path, bool overwrite) {
  // "out/" and "out" are one directory with one temporary name.
  const Path target = path.has_filename() ? path : path.parent_path();
  if (target.empty() || target.filename() == "." || target.filename() == "..")
    return InvalidArgumentError("{}: name the directory to write", path);
  TRY(ClearLeftovers(target));
  if (TRY(PathExists(target)) && !overwrite) {
    return AlreadyExistsError("{}: exists; choose another name or pass --overwrite", target);
  }
  if (target.has_parent_path()) TRY(CreateDirectories(target.parent_path()));
  Path temp = WithSuffix(target, kIncompleteSuffix);
  TRY(MakeDirectory(temp));
  FileDescriptor lock = TRY(Lock(temp));
  return AtomicDirectory(target, std::move(temp), overwrite, std::move(lock));
}

AtomicDirectory::AtomicDirectory(AtomicDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      temp_(std::exchange(other.temp_, Path())),
      overwrite_(other.overwrite_),
      lock_(std::move(other.lock_)) {}

AtomicDirectory::~AtomicDirectory() {
  if (temp_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(temp_, ignored);
}

Status AtomicDirectory::Commit() {
  TRY(SyncDirectory(temp_));
  const bool exists = TRY(PathExists(path_));
  if (exists && !overwrite_)
    return AlreadyExistsError("{}: appeared meanwhile; choose another name", path_);
  TRY(exists ? Replace(temp_, path_) : Rename(temp_, path_));
  temp_.clear();
  return Status();
}

}  // namespace ulmus::checkpoint
