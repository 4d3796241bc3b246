// The folder of one run: who may write to it and where things are in it.
#pragma once

#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::metrics {

// Names inside a run directory. Looking at them writes nothing, so a run that turns out to be
// complete leaves its folder as it was.
struct RunPaths {
  Path root;

  Path recipe() const { return root / "recipe.toml"; }  // resolved: the run starts again from it
  Path metrics() const { return root / "metrics.jsonl"; }
  Path checkpoints() const { return root / "checkpoints"; }
  Path evals() const { return root / "evals"; }
  Path log() const { return root / "log.txt"; }
  Path lock() const { return root / "LOCK"; }
};

// A run directory held for writing until the object, or the process, dies.
class RunDirectory {
 public:
  // Creates what is missing of the folders; touches nothing else but LOCK. kFailedPrecondition
  // names the process that has the run and since when; the lock of a process that is gone is taken
  // over.
  static Result<RunDirectory> Open(const Path& root);

  const RunPaths& paths() const { return paths_; }

 private:
  RunDirectory(RunPaths paths, FileLock lock) : paths_(std::move(paths)), lock_(std::move(lock)) {}
  RunPaths paths_;
  FileLock lock_;
};

}  // namespace ulmus::metrics
