// Permutations by identity: small ones in memory, large ones in files that are built once and
// shared.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/permutation_file.h"

namespace ulmus::data {

struct PermutationStoreOptions {
  // Where files are kept; empty: $XDG_CACHE_HOME/ulmus/permutations, or
  // ~/.cache/ulmus/permutations.
  Path cache_dir = {};
  int64_t memory_bytes = int64_t{256} << 20;  // while building a file
  int64_t max_in_memory = int64_t{4} << 20;   // entries; larger permutations become files
  // A permutation that OLMo-core wrote (global_indices_*.npy), taken where its size and last
  // entries fit.
  Path foreign_file = {};
};

Path DefaultPermutationDir();

// "numpy-pcg64-n724000000-seed34522.perm": the name says all that the content depends on.
std::string PermutationFileName(const PermutationId& id);

// Reads may come from any thread. The first reader of a large permutation builds its file while the
// others wait; so do other processes with the same directory. A damaged file is built again.
class PermutationStore {
 public:
  explicit PermutationStore(PermutationStoreOptions options);

  // entries[k] = entry first + k of the permutation.
  Status Read(const PermutationId& id, int64_t first, std::span<int64_t> entries);
  // Builds the file now, if there is to be one.
  Status Prepare(const PermutationId& id);

 private:
  struct Permutation {
    PermutationId id;
    std::vector<uint32_t> small;  // or
    std::unique_ptr<PermutationFile> file;
    Status Read(int64_t first, std::span<int64_t> entries) const;
  };
  using Shared = std::shared_ptr<const Permutation>;

  Result<Shared> Get(const PermutationId& id);
  Result<Shared> Load(const PermutationId& id) const;
  Result<std::unique_ptr<PermutationFile>> OpenOrBuild(const PermutationId& id) const;
  Status Rebuild(const PermutationId& id, const Status& damage);

  const PermutationStoreOptions options_;
  std::mutex mutex_;
  std::deque<Shared> recent_;  // newest first
};

}  // namespace ulmus::data
