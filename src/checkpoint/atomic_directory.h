// A directory that appears under its name complete or not at all.
#pragma once

#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::checkpoint {

inline constexpr std::string_view kIncompleteSuffix = ".incomplete";
inline constexpr std::string_view kReplacedSuffix =
    ".incomplete.old";  // the old directory, moved aside where two cannot be swapped

// Removes what a writer of `path` that died left behind; puts the old directory back if it had been
// moved aside and nothing followed. kFailedPrecondition if a live process writes it.
Status ClearLeftovers(const Path& path);

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
