#include <algorithm>

#include "base/check.h"
#include "checkpoint/native.h"

namespace ulmus::checkpoint {
namespace {

constexpr std::string_view kRemedy = "use another checkpoint, or copy this one again";

}  // namespace

bool IsNativeCheckpoint(const Path& path) {
  const Result<bool> exists = PathExists(path / kManifestName);
  return exists.ok() && *exists;
}

Result<std::unique_ptr<NativeReader>> NativeReader::Open(const Path& path,
                                                         const VerifyOptions& verify) {
  if (!TRY(PathExists(path))) return NotFoundError("{}: no such checkpoint; check the path", path);
  std::unique_ptr<NativeReader> reader(new NativeReader(path));
  reader->manifest_ = TRY(LoadManifest(reader->store_));
  std::vector<Damage> damaged = TRY(VerifyFiles(reader->store_, reader->manifest_, verify));
  // A file too many is never read; `checkpoint verify` names it.
  std::erase_if(damaged, [&](const Damage& damage) {
    return !reader->manifest_.files.contains(damage.file);
  });
  if (!damaged.empty())
    return DataLossError("{}: damaged: {}; {}", path, DamageText(damaged), kRemedy);
  TRY(reader->OpenArrays());
  return reader;
}

Status NativeReader::OpenArrays() {
  const std::string suffix = fmt::format("/{}", kZarrJson);
  for (const auto& [key, file] : manifest_.files) {
    if (!key.ends_with(suffix)) continue;
    const std::string name = key.substr(0, key.size() - suffix.size());
    // The manifest may come from outside as well.
    if (const Status status = CheckTensorName(name); !status.ok())
      return DataLossError("{}: {}", store_.Describe(key), status.message());
    const std::string text = TRY(LoadChecked(key, kMaxZarrJsonBytes));
    ArrayReader array = TRY(ArrayReader::Parse(store_, cache_, name, text));
    tensors_.push_back({name, array.type()});
    arrays_.push_back(std::move(array));
  }
  // The order of keys is not that of names: '/' sorts behind '.'.
  std::vector<size_t> order(tensors_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](size_t i) -> const std::string& { return tensors_[i].name; });
  std::vector<TensorInfo> tensors;
  std::vector<ArrayReader> arrays;
  for (const size_t i : order) {
    tensors.push_back(std::move(tensors_[i]));
    arrays.push_back(std::move(arrays_[i]));
  }
  tensors_ = std::move(tensors);
  arrays_ = std::move(arrays);
  return Status();
}

Result<std::string> NativeReader::LoadChecked(const std::string& key, int64_t limit_bytes) const {
  std::string text = TRY(store_.ReadText(key, limit_bytes));
  const auto it = manifest_.files.find(key);
  CHECK(it != manifest_.files.end(), "{} is not in the manifest", key);
  if (it->second.size_bytes != static_cast<int64_t>(text.size()) ||
      it->second.hash != Xxh3Wide(text))
    return DataLossError("{}: its checksum differs from the manifest's; {}", store_.Describe(key),
                         kRemedy);
  return text;
}

Status NativeReader::Read(int64_t index, int64_t first, std::span<std::byte> out) const {
  return arrays_[static_cast<size_t>(index)].ReadRange(first, out);
}

Status NativeReader::ReadBlock(int64_t index, const Dims& offsets, const Shape& block,
                               std::span<std::byte> out) const {
  return arrays_[static_cast<size_t>(index)].ReadBlock(offsets, block, out);
}

std::vector<std::string> NativeReader::SideFiles() const {
  const std::string prefix = fmt::format("{}/", kSideFolder);
  std::vector<std::string> names;
  for (const auto& [key, file] : manifest_.files) {
    if (key.starts_with(prefix)) names.push_back(key.substr(prefix.size()));
  }
  return names;
}

Result<std::string> NativeReader::LoadSideFile(std::string_view name) const {
  const std::string key = fmt::format("{}/{}", kSideFolder, name);
  const auto it = manifest_.files.find(key);
  if (it == manifest_.files.end()) return NotFoundError("{}: no side file '{}'", path_, name);
  if (it->second.size_bytes > kMaxSideFileBytes)
    return OutOfRangeError("{}: {} bytes, more than the limit of {}", store_.Describe(key),
                           it->second.size_bytes, kMaxSideFileBytes);
  return LoadChecked(key, kMaxSideFileBytes);
}

Result<std::string> NativeReader::LoadTrainState() const {
  const std::string key(kTrainStateName);
  if (!manifest_.files.contains(key))
    return NotFoundError("{}: weights only, without {}; training cannot be continued from it",
                         path_, kTrainStateName);
  return LoadChecked(key, kMaxTrainStateBytes);
}

Result<VerifyReport> VerifyCheckpoint(const Path& path, const VerifyOptions& options) {
  if (!TRY(PathExists(path))) return NotFoundError("{}: no such checkpoint; check the path", path);
  const LocalReadStore store(path);
  VerifyReport report;
  const Result<Manifest> manifest = LoadManifest(store);
  if (!manifest.ok()) {
    if (manifest.error().code() != StatusCode::kDataLoss) return manifest.error();
    report.damaged.push_back({std::string(kManifestName), manifest.error().message()});
    return report;
  }
  report.step = manifest->step;
  report.files = static_cast<int64_t>(manifest->files.size());
  report.bytes = manifest->total_bytes();
  report.damaged = TRY(VerifyFiles(store, *manifest, options));
  return report;
}

}  // namespace ulmus::checkpoint
