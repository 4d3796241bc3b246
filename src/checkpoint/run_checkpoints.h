// The checkpoints of one run, `<folder>/step-00001000` and so on: which there are, which of them
// count, which one to go on from, which to delete.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "checkpoint/native.h"

namespace ulmus::checkpoint {

inline constexpr std::string_view kRunFolder = "checkpoints";  // inside a run directory

// Eight digits, so that names sort by step; more where needed.
Path StepPath(const Path& folder, int64_t step);

// Of a folder named so, without what stands before it; none for any other name.
std::optional<int64_t> StepOf(std::string_view name);

// Steps of all folders named so, ascending, whole or not. Empty if there is no such folder.
Result<std::vector<int64_t>> ListSteps(const Path& folder);

struct OpenedStep {
  int64_t step = 0;
  Path path;
  std::unique_ptr<NativeReader> reader;
};
struct PassedOver {
  int64_t step = 0;
  Path path;
  std::string why;
};
struct Newest {
  std::optional<OpenedStep> opened;     // none if no step is sound
  std::vector<PassedOver> passed_over;  // newer ones that are damaged, newest first; also logged
};
// The newest that is sound, as NativeReader::Open judges it. What cannot be read for reasons of the
// machine (permission, a server that is away) is an error: it may be the newest one still.
Result<Newest> OpenNewest(const Path& folder, const VerifyOptions& verify = {.full = false});
// kNotFound lists the steps there are; kDataLoss if it is damaged or another step's under this
// name.
Result<OpenedStep> OpenStep(const Path& folder, int64_t step,
                            const VerifyOptions& verify = {.full = false});

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
