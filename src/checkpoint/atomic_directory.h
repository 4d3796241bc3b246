// A directory that appears under its name complete or not at all.
#pragma once

#include "base/file.h"
#include "base/status.h"

namespace ulmus::checkpoint {

// Files are written to `<path>.incomplete`; Commit() syncs it and renames it to `path`. Without
// Commit() it is removed; what a killed process left behind, the next writer of the same path
// removes. One thread.
class AtomicDirectory {
 public:
  // kAlreadyExists if `path` exists and may not be replaced, kFailedPrecondition if another process
  // writes it.
  static Result<AtomicDirectory> Create(const Path& path, bool overwrite);
  AtomicDirectory(AtomicDirectory&& other) noexcept;
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;
  ~AtomicDirectory();

  // Where to write until Commit().
  const Path& temp() const { return temp_; }
  // Files in it must have been synced. An old directory is exchanged in one step where the file
  // system can, and removed after.
  Status Commit();

 private:
  AtomicDirectory(Path path, Path temp, bool overwrite, FileDescriptor lock)
      : path_(std::move(path)),
        temp_(std::move(temp)),
        overwrite_(overwrite),
        lock_(std::move(lock)) {}
  Path path_;
  Path temp_;  // empty once committed or moved from
  bool overwrite_;
  FileDescriptor lock_;  // of the temporary directory
};

}  // namespace ulmus::checkpoint
