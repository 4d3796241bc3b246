// A shuffled 0 .. n-1 as a file: mapped, read in place, each block checked the first time it is
// touched. Format: docs/formats/permutation_file.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"

namespace ulmus::data {

// Which permutation: Generator(PCG64(seed)).permutation(size).
struct PermutationId {
  uint64_t seed = 0;
  int64_t size = 0;
  int64_t element_bytes() const { return size <= (int64_t{1} << 32) ? 4 : 8; }
  friend bool operator==(const PermutationId&, const PermutationId&) = default;
};

inline constexpr int64_t kPermutationBlockBytes = 64 << 10;

class PermutationFile {
 public:
  // kNotFound, or kDataLoss if the file is cut, damaged in its tables, or another permutation's.
  // Reads the tables at the end, not the entries.
  static Result<PermutationFile> Open(const Path& path, const PermutationId& id);

  // A headerless file of uint32 as OLMo-core leaves it (global_indices_*.npy), of which only the
  // size and the last entries can be checked. Trailing bytes, as of our own files, are ignored.
  static Result<PermutationFile> OpenForeign(const Path& path, const PermutationId& id);

  // entries[k] = entry first + k. kDataLoss names the file and the block. Any thread.
  Status Read(int64_t first, std::span<int64_t> entries) const;
  // All blocks.
  Status Verify() const;

  const PermutationId& id() const { return id_; }
  const Path& path() const { return file_.path(); }

 private:
  PermutationFile(MappedFile file, const PermutationId& id) : file_(std::move(file)), id_(id) {}
  Status ReadTables();
  Status CheckBlocks(int64_t first_byte, int64_t end_byte) const;
  int64_t payload_bytes() const { return id_.size * id_.element_bytes(); }

  MappedFile file_;
  PermutationId id_;
  std::vector<uint64_t> block_hashes_;  // empty: a foreign file
  std::unique_ptr<std::atomic<bool>[]> block_checked_;
};

// Writes the format, entries in order.
class PermutationFileWriter {
 public:
  static Result<PermutationFileWriter> Create(const Path& path, const PermutationId& id);
  Status Write(std::span<const std::byte> entries);
  // kInternal if the number of entries is not the size; then, and without Commit, no file appears.
  Status Commit();

 private:
  PermutationFileWriter(AtomicFile file, const PermutationId& id)
      : file_(std::move(file)), id_(id) {}

  AtomicFile file_;
  PermutationId id_;
  Xxh3Stream block_;
  int64_t bytes_ = 0;
  std::vector<uint64_t> block_hashes_;
};

}  // namespace ulmus::data
