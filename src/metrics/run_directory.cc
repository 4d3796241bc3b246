#include "metrics/run_directory.h"

#include <sys/stat.h>

#include <ctime>
#include <sstream>

namespace ulmus::metrics {
namespace {

// When the lock's owner wrote its name, "2026-11-30 06:01:02 UTC", or "" if that is not known.
std::string LockedSince(const Path& lock) {
  struct stat info{};
  struct tm utc{};
  char text[64];
  if (stat(lock.c_str(), &info) != 0 || gmtime_r(&info.st_mtime, &utc) == nullptr) return "";
  return {text, strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc)};
}

// Who has the run, from the "pid host" in the lock file; otherwise what the lock itself said.
Status InUse(const RunPaths& paths, const Status& refused) {
  int64_t pid = 0;
  std::string host;
  const Result<std::string> owner = ReadFile(paths.lock(), 512);
  if (!owner.ok()) return refused;
  if (std::istringstream words(*owner); !(words >> pid >> host)) return refused;
  return FailedPreconditionError(
      "{}: run is in use by process {} on {} since {}; stop it or choose another --run-dir ({})",
      paths.root, pid, host, LockedSince(paths.lock()), refused.message());
}

}  // namespace

Result<RunDirectory> RunDirectory::Open(const Path& root) {
  RunPaths paths{root};
  TRY(CreateDirectories(root));
  Result<FileLock> lock = FileLock::Acquire(paths.lock());
  if (!lock.ok()) {
    if (lock.error().code() != StatusCode::kFailedPrecondition) return lock.error();
    return InUse(paths, lock.error());
  }
  TRY(CreateDirectories(paths.checkpoints()));
  TRY(CreateDirectories(paths.evals()));
  return RunDirectory(std::move(paths), std::move(*lock));
}

}  // namespace ulmus::metrics
