#include "checkpoint/open.h"

#include <algorithm>

#include "base/log.h"
#include "checkpoint/hf_directory.h"
#include "checkpoint/native.h"

namespace ulmus::checkpoint {
namespace {

constexpr std::string_view kStepPrefix = "step-";

Result<OpenedSource> OpenFolder(const Path& folder) {
  if (IsNativeCheckpoint(folder)) return OpenedSource{TRY(NativeReader::Open(folder)), folder};
  return OpenedSource{TRY(HfDirectory::Open(folder)), folder};
}

// Steps are written with leading zeros, so that names sort by number.
Result<OpenedSource> OpenLatest(const Path& run) {
  std::vector<std::string> names = TRY(ListDirectory(run / "checkpoints"));
  std::erase_if(names, [](const std::string& name) { return !name.starts_with(kStepPrefix); });
  std::ranges::reverse(names);
  Status first;
  for (const std::string& name : names) {
    Result<OpenedSource> opened = OpenFolder(run / "checkpoints" / name);
    if (opened.ok()) return opened;
    LogWarning("{}: passed over: {}", (run / "checkpoints" / name).string(),
               opened.error().message());
    if (first.ok()) first = opened.status();
  }
  if (!first.ok()) return first;
  return NotFoundError("{}: no checkpoint; expected folders {}<number>",
                       (run / "checkpoints").string(), kStepPrefix);
}

}  // namespace

Result<OpenedSource> OpenSource(const Path& path) {
  if (!TRY(PathExists(path)))
    return NotFoundError("{}: no such file or directory; expected a checkpoint", path.string());
  if (TRY(PathExists(path / "checkpoints"))) return OpenLatest(path);
  return OpenFolder(path);
}

}  // namespace ulmus::checkpoint
