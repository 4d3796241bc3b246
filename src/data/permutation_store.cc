#include "data/permutation_store.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "data/permutation.h"
#include "data/permutation_build.h"

namespace ulmus::data {
namespace {

// Two neighbouring epochs meet in one batch of some orders, and read-ahead may reach a third.
constexpr size_t kMaxRecent = 4;

// Waits for whoever builds the file. Its lock is free as soon as its process ends, however it ends.
Result<FileLock> LockWaiting(const Path& path) {
  constexpr auto kPause = std::chrono::milliseconds(100);
  constexpr int kPausesPerLine = 100;
  for (int i = 0;; ++i) {
    Result<FileLock> lock = FileLock::Acquire(path);
    if (lock.ok() || lock.error().code() != StatusCode::kFailedPrecondition) return lock;
    if (i % kPausesPerLine == 10)
      LogInfo("waiting for another process to build it: {}", lock.error().message());
    std::this_thread::sleep_for(kPause);
  }
}

// What a builder that was killed left behind. The caller holds the lock, so none is alive.
Status RemoveLeftovers(const Path& path) {
  const std::string prefix = path.filename().string() + ".";
  for (const std::string& name : TRY(ListDirectory(path.parent_path()))) {
    if (name.starts_with(prefix + "tmp-") || name.starts_with(prefix + "scratch-"))
      TRY(RemoveFile(path.parent_path() / name));
  }
  return {};
}

}  // namespace

Path DefaultPermutationDir() {
  const Path cache = UserCacheDirectory();
  return (cache.empty() ? Path(".") / ".cache" / "ulmus" : cache) / "permutations";
}

std::string PermutationFileName(const PermutationId& id) {
  return fmt::format("numpy-pcg64-n{}-seed{}.perm", id.size, id.seed);
}

PermutationStore::PermutationStore(PermutationStoreOptions options)
    : options_([&options] {
        if (options.cache_dir.empty()) options.cache_dir = DefaultPermutationDir();
        return std::move(options);
      }()) {}

Status PermutationStore::Permutation::Read(int64_t first, std::span<int64_t> entries) const {
  if (file != nullptr) return file->Read(first, entries);
  CHECK(first >= 0 && first + static_cast<int64_t>(entries.size()) <= id.size, "entry {} of {}",
        first, id.size);
  std::copy_n(small.begin() + first, entries.size(), entries.begin());
  return {};
}

Status PermutationStore::Read(const PermutationId& id, int64_t first, std::span<int64_t> entries) {
  const Status status = TRY(Get(id))->Read(first, entries);
  if (status.code() != StatusCode::kDataLoss) return status;
  TRY(Rebuild(id, status));
  return TRY(Get(id))->Read(first, entries);
}

Status PermutationStore::Prepare(const PermutationId& id) { return Get(id).status(); }

Result<PermutationStore::Shared> PermutationStore::Get(const PermutationId& id) {
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(recent_.begin(), recent_.end(),
                               [&id](const Shared& permutation) { return permutation->id == id; });
  if (it != recent_.end()) {
    Shared found = *it;
    recent_.erase(it);
    recent_.push_front(found);
    return found;
  }
  Shared loaded = TRY(Load(id));
  recent_.push_front(loaded);
  if (recent_.size() > kMaxRecent) recent_.pop_back();
  return loaded;
}

Result<PermutationStore::Shared> PermutationStore::Load(const PermutationId& id) const {
  auto permutation = std::make_shared<Permutation>();
  permutation->id = id;
  if (id.size <= options_.max_in_memory && id.element_bytes() == 4)
    permutation->small = MakePermutation<uint32_t>(id.seed, id.size);
  else
    permutation->file = TRY(OpenOrBuild(id));
  return Shared(std::move(permutation));
}

Result<std::unique_ptr<PermutationFile>> PermutationStore::OpenOrBuild(
    const PermutationId& id) const {
  if (!options_.foreign_file.empty()) {
    Result<PermutationFile> foreign = PermutationFile::OpenForeign(options_.foreign_file, id);
    if (foreign.ok()) return std::make_unique<PermutationFile>(std::move(*foreign));
    LogWarning("not used: {}", foreign.error().message());
  }
  const Path path = options_.cache_dir / PermutationFileName(id);
  if (Result<PermutationFile> file = PermutationFile::Open(path, id); file.ok())
    return std::make_unique<PermutationFile>(std::move(*file));
  TRY(CreateDirectories(options_.cache_dir));
  Path lock_path = path;
  lock_path += ".lock";
  const FileLock lock = TRY(LockWaiting(lock_path));
  // Perhaps built while we waited.
  Result<PermutationFile> file = PermutationFile::Open(path, id);
  if (file.ok()) return std::make_unique<PermutationFile>(std::move(*file));
  if (file.error().code() == StatusCode::kDataLoss)
    LogWarning("building it again: {}", file.error().message());
  else if (file.error().code() != StatusCode::kNotFound)
    return file.error();
  TRY(RemoveLeftovers(path));
  LogInfo("building the order of {} instances once: {}", id.size, path);
  TRY(BuildPermutation(id, path, {.memory_bytes = options_.memory_bytes}));
  return std::make_unique<PermutationFile>(TRY(PermutationFile::Open(path, id)));
}

Status PermutationStore::Rebuild(const PermutationId& id, const Status& damage) {
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(recent_.begin(), recent_.end(),
                               [&id](const Shared& permutation) { return permutation->id == id; });
  // Without it another thread was here before.
  if (it == recent_.end()) return {};
  // A foreign file is not ours to remove.
  const PermutationFile* file = (*it)->file.get();
  if (file == nullptr || file->path() == options_.foreign_file) return damage;
  LogWarning("building it again: {}", damage.message());
  const Status removed = RemoveFile(file->path());
  if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  recent_.erase(it);
  return {};
}

}  // namespace ulmus::data
