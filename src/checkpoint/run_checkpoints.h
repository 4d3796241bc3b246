// The checkpoints of one run, `<folder>/step-00001000` and so on: which there are, which of them
// count, which one to go on from, which to delete.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "checkpoint/native.h"

namespace ulmus::checkpoint {

inline constexpr std::string_view kRunFolder = "checkpoints";  // inside a run directory

// Eight digits, so that names sort by step; more where needed.
Path StepPath(const Path& folder, int64_t step);

// Steps of all folders named so, ascending, whole or not. Empty if there is no such folder.
Result<std::vector<int64_t>> ListSteps(const Path& folder);

struct OpenedStep {
  int64_t step = 0;
  Path path;
  std::unique_ptr<NativeReader> reader;
};
// The newest that is complete; those passed over are logged with the reason. nullopt if there is
// none.
Result<std::optional<OpenedStep>> OpenNewest(const Path& folder);
// kNotFound lists the steps there are.
Result<OpenedStep> OpenStep(const Path& folder, int64_t step);

// Removes what saves that died left in `folder`: once, before the first save of a process. Another
// process' save under way is left alone.
Status RemoveLeftovers(const Path& folder);

struct KeepOptions {
  int64_t last = 0;   // complete ones to keep; 0 keeps all
  int64_t every = 0;  // steps divisible by it are kept as well; 0: none
};
// Deletes those older than the newest `last` complete ones. A damaged one that is newer is evidence
// and stays. Returns the steps deleted.
Result<std::vector<int64_t>> PruneSteps(const Path& folder, const KeepOptions& keep);

}  // namespace ulmus::checkpoint
