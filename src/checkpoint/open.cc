#include "checkpoint/open.h"

#include <algorithm>

#include "checkpoint/contained_file.h"
#include "checkpoint/hf_directory.h"
#include "checkpoint/native.h"
#include "checkpoint/run_checkpoints.h"
#include "checkpoint/safetensors_file.h"

namespace ulmus::checkpoint {
namespace {

bool Has(const Path& folder, std::string_view name) {
  const Result<bool> exists = PathExists(folder / name);
  return exists.ok() && *exists;
}

bool IsDirectory(const Path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// Formats that are known but not read, with the way round.
Status Unreadable(const Path& path) {
  for (std::string_view mark : {"_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt",
                                "items/_METADATA", "items/manifest.ocdbt"}) {
    if (!Has(path, mark)) continue;
    return UnimplementedError(
        "{}: an Orbax checkpoint (it has {}), or one of ours that is not complete (it has no {}); "
        "this version reads neither. Use another checkpoint, or export it to a Hugging Face "
        "directory with the program that wrote it and name that",
        path, mark, kManifestName);
  }
  const Result<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return names.error();
  for (const std::string& name : *names) {
    if (name == "model_and_optim" || name.ends_with(".distcp")) {
      return UnimplementedError(
          "{}: a PyTorch distributed checkpoint (it has {}); this version does not read its "
          "pickled index. Export it to a Hugging Face directory with OLMo-core and name that",
          path, name);
    }
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      return UnimplementedError(
          "{}: pickled weights (it has {}), which are never read, as they can run code; save them "
          "as safetensors and name those",
          path, Quoted(name));
    }
  }
  return NotFoundError(
      "{}: neither a Hugging Face directory ({} or {}), nor a .safetensors file, nor a checkpoint "
      "({}), nor a run directory (checkpoints/)",
      path, kIndexFileName, kSingleFileName, kManifestName);
}

Result<OpenedSource> OpenHf(const Path& path) {
  std::unique_ptr<HfDirectory> directory = TRY(HfDirectory::Open(path));
  OpenedSource source{WeightFormat::kHf, path, nullptr, directory->layout(), std::nullopt};
  source.tensors = std::move(directory);
  return source;
}

Result<OpenedSource> OpenFile(const Path& path) {
  OpenedSource source{WeightFormat::kSafetensorsFile, path, nullptr, std::nullopt, std::nullopt};
  source.tensors = TRY(SafetensorsSource::Open(path));
  const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
  if (Has(folder, "config.json")) {
    source.config_json = TRY(ReadFileInside(folder, "config.json", kMaxSideFileBytes));
  }
  return source;
}

Result<OpenedSource> OpenUlmus(const Path& path) {
  OpenedSource source{WeightFormat::kUlmus, path, nullptr, std::nullopt, std::nullopt};
  source.tensors = TRY(NativeReader::Open(path));
  const std::vector<std::string> names = source.tensors->SideFiles();
  if (std::ranges::find(names, kLayoutFileName) != names.end()) {
    const std::string text = TRY(source.tensors->LoadSideFile(kLayoutFileName));
    source.layout = TRY(ParseLayout(text));
  }
  return source;
}

Result<OpenedSource> OpenRun(const Path& path) {
  const Path folder = path / kRunFolder;
  const std::optional<OpenedStep> newest = TRY(OpenNewest(folder)).opened;
  if (!newest) return NotFoundError("{}: no checkpoint that is complete", folder);
  return OpenUlmus(newest->path);
}

Result<OpenedSource> Open(const Path& path) {
  if (!TRY(PathExists(path))) return NotFoundError("{}: no such file or directory", path);
  if (!IsDirectory(path)) {
    if (path.extension() == ".safetensors") return OpenFile(path);
    return InvalidArgumentError(
        "{}: a file, but no .safetensors file; name that, or a directory with weights", path);
  }
  if (IsNativeCheckpoint(path)) return OpenUlmus(path);
  if (LooksLikeHfDirectory(path)) return OpenHf(path);
  if (IsDirectory(path / kRunFolder)) return OpenRun(path);
  // Weights under other names: HfDirectory says which file it misses.
  const Result<std::vector<std::string>> names = ListDirectory(path);
  if (names.ok() && std::ranges::any_of(*names, [](const std::string& name) {
        return name.ends_with(".safetensors");
      }))
    return OpenHf(path);
  return Unreadable(path);
}

}  // namespace

std::string_view Name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kHf:
      return "hf";
    case WeightFormat::kSafetensorsFile:
      return "safetensors";
    case WeightFormat::kUlmus:
      return "ulmus";
  }
  return "";
}

Result<OpenedSource> OpenSource(const Path& path) {
  OpenedSource source = TRY(Open(path));
  const std::vector<std::string> names = source.tensors->SideFiles();
  if (!source.config_json && std::ranges::find(names, "config.json") != names.end())
    source.config_json = TRY(source.tensors->LoadSideFile("config.json"));
  return source;
}

bool IsReplaceable(const Path& path) {
  if (!IsDirectory(path)) return false;
  const Result<std::vector<std::string>> names = ListDirectory(path);
  return (names.ok() && names->empty()) || LooksLikeHfDirectory(path) || IsNativeCheckpoint(path);
}

}  // namespace ulmus::checkpoint
