#include "apps/convert_formats.h"

#include <algorithm>

#include "base/log.h"
#include "checkpoint/contained_file.h"
#include "checkpoint/hf_directory.h"
#include "checkpoint/native.h"
#include "checkpoint/safetensors_file.h"

namespace ulmus::apps {
namespace {

using checkpoint::TensorSource;

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
        "{}: an Orbax checkpoint (it has {}); this version does not read Orbax trees. Export it to "
        "a "
        "Hugging Face directory with the program that wrote it, then convert that",
        path, mark);
  }
  const Result<std::vector<std::string>> names = ListDirectory(path);
  if (!names.ok()) return names.error();
  for (const std::string& name : *names) {
    if (name == "model_and_optim" || name.ends_with(".distcp")) {
      return UnimplementedError(
          "{}: a PyTorch distributed checkpoint (it has {}); this version does not read its "
          "pickled "
          "index. Export it to a Hugging Face directory with OLMo-core, then convert that",
          path, name);
    }
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      return UnimplementedError(
          "{}: pickled weights (it has {}), which are never read, as they can run code; save them "
          "as "
          "safetensors, then convert that",
          path, checkpoint::Quoted(name));
    }
  }
  return NotFoundError(
      "{}: neither a Hugging Face directory ({} or {}), nor a .safetensors file, nor a checkpoint "
      "({}), nor a run directory (checkpoints/)",
      path, checkpoint::kIndexFileName, checkpoint::kSingleFileName, checkpoint::kManifestName);
}

Result<WeightSource> OpenHf(const Path& path) {
  std::unique_ptr<checkpoint::HfDirectory> directory = TRY(checkpoint::HfDirectory::Open(path));
  WeightSource source{WeightFormat::kHf, path, nullptr, directory->layout(), std::nullopt};
  source.tensors = std::move(directory);
  return source;
}

Result<WeightSource> OpenFile(const Path& path) {
  WeightSource source{WeightFormat::kSafetensorsFile, path, nullptr, std::nullopt, std::nullopt};
  source.tensors = TRY(checkpoint::SafetensorsSource::Open(path));
  const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
  if (Has(folder, "config.json")) {
    source.config_json =
        TRY(checkpoint::ReadFileInside(folder, "config.json", checkpoint::kMaxSideFileBytes));
  }
  return source;
}

Result<WeightSource> OpenUlmus(const Path& path) {
  WeightSource source{WeightFormat::kUlmus, path, nullptr, std::nullopt, std::nullopt};
  source.tensors = TRY(checkpoint::NativeReader::Open(path));
  const std::vector<std::string> names = source.tensors->SideFiles();
  if (std::ranges::find(names, checkpoint::kLayoutFileName) != names.end()) {
    const std::string text = TRY(source.tensors->LoadSideFile(checkpoint::kLayoutFileName));
    source.layout = TRY(checkpoint::ParseLayout(text));
  }
  return source;
}

// The newest checkpoint of a run that is whole; those that are not are named and passed over.
Result<WeightSource> OpenRun(const Path& path) {
  const Path folder = path / "checkpoints";
  std::vector<std::string> names = TRY(ListDirectory(folder));
  std::ranges::reverse(names);  // step-00001000: the order of names is that of steps
  for (const std::string& name : names) {
    if (!name.starts_with("step-") || !checkpoint::IsNativeCheckpoint(folder / name)) continue;
    Result<WeightSource> source = OpenUlmus(folder / name);
    if (source.ok()) return source;
    LogWarning("{}; trying an older checkpoint", source.error().message());
  }
  return NotFoundError("{}: no checkpoint that is whole", folder);
}

Result<WeightSource> Open(const Path& path) {
  if (!TRY(PathExists(path))) return NotFoundError("{}: no such file or directory", path);
  if (!IsDirectory(path)) {
    if (path.extension() == ".safetensors") return OpenFile(path);
    return InvalidArgumentError(
        "{}: a file, but no .safetensors file; name that, or a directory with weights", path);
  }
  if (checkpoint::IsNativeCheckpoint(path)) return OpenUlmus(path);
  if (checkpoint::LooksLikeHfDirectory(path)) return OpenHf(path);
  if (IsDirectory(path / "checkpoints")) return OpenRun(path);
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

Result<WeightSource> OpenWeightSource(const Path& path) {
  WeightSource source = TRY(Open(path));
  const std::vector<std::string> names = source.tensors->SideFiles();
  if (!source.config_json && std::ranges::find(names, "config.json") != names.end())
    source.config_json = TRY(source.tensors->LoadSideFile("config.json"));
  return source;
}

bool IsReplaceable(const Path& path) {
  if (!IsDirectory(path)) return false;
  const Result<std::vector<std::string>> names = ListDirectory(path);
  return (names.ok() && names->empty()) || checkpoint::LooksLikeHfDirectory(path) ||
         checkpoint::IsNativeCheckpoint(path);
}

}  // namespace ulmus::apps
