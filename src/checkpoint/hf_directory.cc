#include "checkpoint/hf_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/log.h"

namespace ulmus::checkpoint {
namespace {

constexpr size_t kMaxSideFiles = 256;
// The kernel starts writing this often, so that the sync at the end is not one long wait.
constexpr int64_t kFlushBytes = int64_t{32} << 20;

bool IsSideFile(std::string_view name) {
  if (name.starts_with('.') || name == kIndexFileName || name == kLayoutFileName ||
      name.ends_with(".index.json"))
    return false;
  for (std::string_view suffix : {".json", ".jinja", ".txt", ".model", ".md", ".tiktoken"})
    if (name.ends_with(suffix)) return true;
  return name == "LICENSE" || name == "NOTICE";
}

Result<std::vector<std::string>> FindSideFiles(const Path& folder) {
  std::vector<std::string> names;
  for (std::string& name : TRY(ListDirectory(folder))) {
    if (!IsSideFile(name)) continue;
    std::error_code error;
    if (std::filesystem::is_directory(folder / name, error)) continue;
    TRY(ResolveInside(folder, name));
    names.push_back(std::move(name));
  }
  if (names.size() > kMaxSideFiles) {
    return DataLossError(
        "{}: {} text files beside the weights, more than {}; this is no model directory", folder,
        names.size(), kMaxSideFiles);
  }
  return names;
}

// "model.safetensors", the only file of a directory without index. Says which of the ways of being
// no such directory holds.
Status CheckSingle(const Path& folder) {
  if (TRY(PathExists(folder / kSingleFileName))) return Status();
  for (const std::string& name : TRY(ListDirectory(folder))) {
    if (name.ends_with(".safetensors")) {
      return NotFoundError("{}: has {} but neither {} nor {}; download the index as well", folder,
                           Quoted(name), kIndexFileName, kSingleFileName);
    }
  }
  return NotFoundError("{}: has neither {} nor {}; name a directory with safetensors weights",
                       folder, kIndexFileName, kSingleFileName);
}

// The paths of an index's files; nothing is opened before all are known to be allowed and there.
Result<std::vector<Path>> ResolveFiles(const Path& folder, const WeightIndex& index) {
  std::vector<Path> paths;
  for (const std::string& name : index.Files()) {
    Result<Path> path = ResolveInside(folder, name);
    if (!path.ok()) {
      const auto entry = std::ranges::find(index.weight_map, name, &WeightMapEntry::file);
      return Status(path.error().code(),
                    fmt::format("{}: weight_map of tensor {}: {}", folder / kIndexFileName,
                                Quoted(entry->tensor), path.error().message()));
    }
    paths.push_back(std::move(*path));
  }
  return paths;
}

}  // namespace

bool LooksLikeHfDirectory(const Path& folder) {
  const auto has = [&](std::string_view name) {
    const Result<bool> exists = PathExists(folder / name);
    return exists.ok() && *exists;
  };
  return has(kIndexFileName) || has(kSingleFileName);
}

Result<std::unique_ptr<HfDirectory>> HfDirectory::Open(const Path& folder) {
  std::unique_ptr<HfDirectory> directory(new HfDirectory());
  TRY(directory->Load(folder));
  return directory;
}

Status HfDirectory::Load(const Path& folder) {
  folder_ = folder;
  std::vector<std::string> names;
  std::vector<Path> paths;
  std::optional<WeightIndex> index;
  if (TRY(PathExists(folder / kIndexFileName))) {
    layout_.index_text = TRY(ReadFileInside(folder, kIndexFileName, kMaxIndexBytes));
    Result<WeightIndex> parsed = ParseWeightIndex(*layout_.index_text);
    if (!parsed.ok()) return parsed.error().WithContext((folder / kIndexFileName).string());
    index = std::move(*parsed);
    names = index->Files();
    if (TRY(PathExists(folder / kSingleFileName)) &&
        !std::ranges::binary_search(names, kSingleFileName)) {
      return DataLossError(
          "{}: has both {} and an index that does not name it; remove the one that is stale",
          folder, kSingleFileName);
    }
    paths = TRY(ResolveFiles(folder, *index));
  } else {
    TRY(CheckSingle(folder));
    names.emplace_back(kSingleFileName);
    paths.push_back(TRY(ResolveInside(folder, kSingleFileName)));
  }
  side_files_ = TRY(FindSideFiles(folder));

  int64_t header_bytes = 0;
  for (size_t i = 0; i < paths.size(); ++i) {
    files_.push_back(TRY(SafetensorsFile::Open(paths[i])));
    header_bytes += static_cast<int64_t>(files_[i].header_text().size());
    if (header_bytes > kMaxHeaderBytes) {
      return DataLossError("{}: headers of more than {} bytes together; no model has that many",
                           folder, kMaxHeaderBytes);
    }
    layout_.files.push_back({names[i], files_[i].header_text(), files_[i].header()});
  }
  if (index) {
    const Status agrees = CheckIndexAgainstFiles(*index, layout_.files);
    if (!agrees.ok()) return agrees.WithContext(folder.string());
  }

  for (size_t file = 0; file < files_.size(); ++file)
    for (size_t i = 0; i < files_[file].header().tensors.size(); ++i) places_.push_back({file, i});
  const auto tensor_at = [this](const Place& place) -> const TensorInfo& {
    return files_[place.file].header().tensors[place.tensor].info;
  };
  std::ranges::sort(
      places_, {}, [&](const Place& place) -> const std::string& { return tensor_at(place).name; });
  for (const Place& place : places_) infos_.push_back(tensor_at(place));
  side_files_.emplace_back(kLayoutFileName);
  std::ranges::sort(side_files_);
  return Status();
}

Status HfDirectory::Read(int64_t index, int64_t first, std::span<std::byte> out) const {
  const Place& place = places_[static_cast<size_t>(index)];
  const SafetensorsFile& file = files_[place.file];
  return file.Read(file.header().tensors[place.tensor], first, out);
}

std::vector<int64_t> HfDirectory::StorageOrder() const {
  std::vector<int64_t> order = TensorSource::StorageOrder();
  std::ranges::sort(order, {}, [&](int64_t i) {
    const Place& place = places_[static_cast<size_t>(i)];
    return std::pair(place.file, place.tensor);
  });
  return order;
}

Result<std::string> HfDirectory::LoadSideFile(std::string_view name) const {
  if (name == kLayoutFileName) return LayoutText(layout_);
  if (!std::ranges::binary_search(side_files_, name))
    return NotFoundError("{}: has no side file {}", folder_, Quoted(name));
  return ReadFileInside(folder_, name, kMaxSideFileBytes);
}

// --- Writing

Result<std::unique_ptr<HfSink>> HfSink::Create(const Path& folder, HfLayout layout,
                                               const HfSinkOptions& options) {
  AtomicDirectory directory = TRY(AtomicDirectory::Create(folder, options.overwrite));
  return std::unique_ptr<HfSink>(new HfSink(std::move(directory), std::move(layout)));
}

Status HfSink::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      const Result<int64_t> free_bytes = FreeDiskBytes(directory_.temp());
      return ErrnoError(error, path_,
                        fmt::format("write ({} more bytes here, {} free)", bytes.size(),
                                    free_bytes.ok() ? std::to_string(*free_bytes) : "unknown"));
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
    file_bytes_ += count;
    unflushed_bytes_ += count;
  }
  if (unflushed_bytes_ >= kFlushBytes) {
    // A hint only: durability comes from fsync.
    sync_file_range(fd_.get(), file_bytes_ - unflushed_bytes_, unflushed_bytes_,
                    SYNC_FILE_RANGE_WRITE);
    unflushed_bytes_ = 0;
  }
  return Status();
}

Status HfSink::StartFile() {
  const HfFile& file = layout_.files[file_];
  path_ = directory_.temp() / file.name;
  fd_ = FileDescriptor(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd_.valid()) return ErrnoError(errno, path_, "create");
  file_bytes_ = 0;
  unflushed_bytes_ = 0;
  const auto length = static_cast<uint64_t>(file.header_text.size());
  TRY(Write(std::as_bytes(std::span(&length, 1))));
  return Write(std::as_bytes(std::span(file.header_text)));
}

Status HfSink::FinishFile() {
  if (fsync(fd_.get()) != 0) return ErrnoError(errno, path_, "sync");
  if (const int error = fd_.Close(); error != 0) return ErrnoError(error, path_, "write");
  ++file_;
  tensor_ = 0;
  return Status();
}

Status HfSink::Begin(const TensorInfo& tensor) {
  CHECK(missing_bytes_ == 0, "{} begun, {} bytes before it are missing", tensor.name,
        missing_bytes_);
  // Files without tensors are legal; they are passed over here.
  while (file_ < layout_.files.size()) {
    if (!fd_.valid()) TRY(StartFile());
    if (tensor_ < layout_.files[file_].header.tensors.size()) break;
    TRY(FinishFile());
  }
  CHECK(file_ < layout_.files.size(), "{} begun after the last tensor", tensor.name);
  const SafetensorsTensor& expected = layout_.files[file_].header.tensors[tensor_];
  CHECK(expected.info == tensor, "{} {} begun, the layout has {} {}", tensor.name,
        tensor.type.ToString(), expected.info.name, expected.info.type.ToString());
  ++tensor_;
  missing_bytes_ = expected.end - expected.begin;
  return Status();
}

Status HfSink::Append(std::span<const std::byte> bytes) {
  CHECK(static_cast<int64_t>(bytes.size()) <= missing_bytes_, "{} bytes, {} are missing",
        bytes.size(), missing_bytes_);
  missing_bytes_ -= static_cast<int64_t>(bytes.size());
  return Write(bytes);
}

Status HfSink::AddSideFile(std::string_view name, std::string_view bytes) {
  TRY(CheckBaseName(name));
  if (name == kLayoutFileName || name == kIndexFileName)
    return InvalidArgumentError("{}: written by the layout, not as a side file", name);
  return WriteFileAtomic(directory_.temp() / name, bytes);
}

Status HfSink::CheckComplete() const {
  if (missing_bytes_ == 0 && file_ == layout_.files.size()) return Status();
  return FailedPreconditionError("{}: tensors are missing; nothing was written", directory_.temp());
}

Status HfSink::Commit() {
  while (missing_bytes_ == 0 && file_ < layout_.files.size()) {
    if (!fd_.valid()) TRY(StartFile());
    if (tensor_ < layout_.files[file_].header.tensors.size()) break;
    TRY(FinishFile());
  }
  TRY(CheckComplete());
  if (layout_.index_text)
    TRY(WriteFileAtomic(directory_.temp() / kIndexFileName, *layout_.index_text));
  const std::unique_ptr<HfDirectory> written = TRY(HfDirectory::Open(directory_.temp()));
  std::vector<TensorInfo> expected = layout_.Tensors();
  std::ranges::sort(expected, {}, &TensorInfo::name);
  if (!std::ranges::equal(written->tensors(), expected)) {
    return InternalError("{}: re-opened, it holds other tensors than were written",
                         directory_.temp());
  }
  return directory_.Commit();
}

}  // namespace ulmus::checkpoint
