#include "checkpoint/run_checkpoints.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "base/log.h"
#include "checkpoint/atomic_directory.h"

namespace ulmus::checkpoint {
namespace {

constexpr std::string_view kPrefix = "step-";

Result<std::unique_ptr<NativeReader>> OpenNamed(const Path& path, int64_t step,
                                                const VerifyOptions& verify) {
  std::unique_ptr<NativeReader> reader = TRY(NativeReader::Open(path, verify));
  if (reader->step() == step) return reader;
  return DataLossError("{}: its manifest is of step {}; give the folder its own name back", path,
                       reader->step());
}

// Says nothing about the checkpoint itself, and may have passed at the next try.
bool IsOfTheMachine(const Status& status) {
  return status.code() == StatusCode::kPermissionDenied ||
         status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kResourceExhausted;
}

}  // namespace

std::optional<int64_t> StepOf(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  // "step-7" is a folder of somebody else: it would be step 7 under a second name.
  if (StepPath("", step) != Path(name)) return std::nullopt;
  return step;
}

Path StepPath(const Path& folder, int64_t step) {
  return folder / fmt::format("{}{:08}", kPrefix, step);
}

Result<std::vector<int64_t>> ListSteps(const Path& folder) {
  std::vector<int64_t> steps;
  if (!TRY(PathExists(folder))) return steps;
  for (const std::string& name : TRY(ListDirectory(folder))) {
    if (const std::optional<int64_t> step = StepOf(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps);
  return steps;
}

Result<Newest> OpenNewest(const Path& folder, const VerifyOptions& verify) {
  Newest newest;
  std::vector<int64_t> steps = TRY(ListSteps(folder));
  std::ranges::reverse(steps);
  for (const int64_t step : steps) {
    Path path = StepPath(folder, step);
    Result<std::unique_ptr<NativeReader>> reader = OpenNamed(path, step, verify);
    if (reader.ok()) {
      newest.opened = OpenedStep{step, std::move(path), *std::move(reader)};
      break;
    }
    if (IsOfTheMachine(reader.error())) return reader.error();
    LogWarning("passed over: {}", reader.error().message());
    newest.passed_over.push_back({step, std::move(path), reader.error().message()});
  }
  return newest;
}

Result<OpenedStep> OpenStep(const Path& folder, int64_t step, const VerifyOptions& verify) {
  Path path = StepPath(folder, step);
  if (step < 0 || !TRY(PathExists(path))) {
    const std::vector<int64_t> steps = TRY(ListSteps(folder));
    return NotFoundError("{}: no checkpoint of step {}; available: {}", folder, step,
                         steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", ")));
  }
  std::unique_ptr<NativeReader> reader = TRY(OpenNamed(path, step, verify));
  return OpenedStep{step, std::move(path), std::move(reader)};
}

Status RemoveLeftovers(const Path& folder) {
  if (!TRY(PathExists(folder))) return Status();
  for (const std::string& name : TRY(ListDirectory(folder))) {
    for (const std::string_view suffix : {kIncompleteSuffix, kReplacedSuffix}) {
      if (!name.ends_with(suffix)) continue;
      const std::string whole = name.substr(0, name.size() - suffix.size());
      if (!StepOf(whole)) continue;
      const Status cleared = ClearLeftovers(folder / whole);
      if (cleared.code() != StatusCode::kFailedPrecondition) TRY(cleared);  // somebody writes it
    }
  }
  return Status();
}

Result<std::vector<int64_t>> PruneSteps(const Path& folder, const KeepOptions& keep) {
  std::vector<int64_t> deleted;
  if (keep.last <= 0) return deleted;
  std::vector<int64_t> steps = TRY(ListSteps(folder));
  std::ranges::reverse(steps);
  int64_t complete = 0;
  for (const int64_t step : steps) {
    const Path path = StepPath(folder, step);
    if (complete < keep.last) {
      if (OpenNamed(path, step, {.full = false}).ok()) ++complete;
      continue;
    }
    if (keep.every > 0 && step % keep.every == 0) continue;
    // Without its manifest it is no checkpoint, whenever the removal of the rest is cut off.
    if (TRY(PathExists(path / kManifestName))) TRY(RemoveFile(path / kManifestName));
    TRY(RemoveTree(path));
    deleted.push_back(step);
  }
  std::ranges::reverse(deleted);
  return deleted;
}

}  // namespace ulmus::checkpoint
