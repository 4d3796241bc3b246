#include "data/permutation_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "data/permutation.h"

namespace ulmus::data {
namespace {

static_assert(std::endian::native == std::endian::little, "entries are mapped as they are");

// The last 64 bytes of a file.
struct Trailer {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t element_bytes = 0;
  uint64_t size = 0;
  uint64_t seed = 0;
  uint64_t block_bytes = 0;
  uint64_t table_hash = 0;  // XXH3 of the table of block hashes
  uint64_t reserved = 0;
  uint64_t trailer_hash = 0;  // XXH3 of the 56 bytes before
};
static_assert(sizeof(Trailer) == 64);

constexpr std::array<char, 8> kMagic = {'U', 'L', 'M', 'P', 'E', 'R', 'M', '\n'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kTailEntries = 4096;  // of a foreign file, drawn again and compared

template <class T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

uint64_t HashOf(const Trailer& trailer) {
  return Xxh3(BytesOf(trailer).first(offsetof(Trailer, trailer_hash)));
}

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Result<PermutationFile> PermutationFile::Open(const Path& path, const PermutationId& id) {
  PermutationFile result(TRY(MappedFile::Open(path)), id);
  TRY(result.ReadTables());
  return result;
}

Status PermutationFile::ReadTables() {
  const int64_t num_blocks =
      RoundUp(payload_bytes(), kPermutationBlockBytes) / kPermutationBlockBytes;
  const int64_t table_bytes = num_blocks * 8;
  const int64_t table_begin = RoundUp(payload_bytes(), 8);
  const int64_t expected = table_begin + table_bytes + int64_t{sizeof(Trailer)};
  if (file_.size_bytes() != expected) {
    return DataLossError(
        "{}: {} bytes, expected {} for a permutation of {}; remove it, it will be built again",
        path(), file_.size_bytes(), expected, id_.size);
  }
  Trailer trailer;
  std::memcpy(&trailer, file_.bytes().last(sizeof(Trailer)).data(), sizeof(Trailer));
  const auto table =
      file_.bytes().subspan(static_cast<size_t>(table_begin), static_cast<size_t>(table_bytes));
  if (trailer.magic != kMagic || trailer.trailer_hash != HashOf(trailer) ||
      trailer.table_hash != Xxh3(table)) {
    return DataLossError("{}: damaged in its last {} bytes; remove it, it will be built again",
                         path(), table_bytes + int64_t{sizeof(Trailer)});
  }
  if (trailer.version != kVersion || trailer.block_bytes != kPermutationBlockBytes ||
      trailer.element_bytes != id_.element_bytes() ||
      trailer.size != static_cast<uint64_t>(id_.size) || trailer.seed != id_.seed) {
    return DataLossError(
        "{}: holds version {}, seed {}, {} entries of {} bytes; expected version {}, "
        "seed {}, {} entries of {} bytes; remove it, it will be built again",
        path(), trailer.version, trailer.seed, trailer.size, trailer.element_bytes, kVersion,
        id_.seed, id_.size, id_.element_bytes());
  }
  block_hashes_.resize(static_cast<size_t>(num_blocks));
  std::memcpy(block_hashes_.data(), table.data(), table.size());
  block_checked_ = std::make_unique<std::atomic<bool>[]>(block_hashes_.size());
  return {};
}

Result<PermutationFile> PermutationFile::OpenForeign(const Path& path, const PermutationId& id) {
  PermutationFile result(TRY(MappedFile::Open(path)), id);
  if (result.file_.size_bytes() < result.payload_bytes()) {
    return DataLossError("{}: {} bytes, expected {} for {} entries of {} bytes", path,
                         result.file_.size_bytes(), result.payload_bytes(), id.size,
                         id.element_bytes());
  }
  const std::vector<int64_t> expected = PermutationTail(id.seed, id.size, kTailEntries);
  std::vector<int64_t> found(expected.size());
  const int64_t first = id.size - static_cast<int64_t>(expected.size());
  TRY(result.Read(first, found));
  const auto [want, have] = std::mismatch(expected.begin(), expected.end(), found.begin());
  if (want != expected.end()) {
    return DataLossError(
        "{}: entry {} is {}, the shuffle of {} entries with seed {} has {} there; the file "
        "belongs to another seed, epoch or dataset",
        path, first + (want - expected.begin()), *have, id.size, id.seed, *want);
  }
  return result;
}

Status PermutationFile::CheckBlocks(int64_t first_byte, int64_t end_byte) const {
  if (block_hashes_.empty()) return {};
  for (int64_t block = first_byte / kPermutationBlockBytes;
       block * kPermutationBlockBytes < end_byte; ++block) {
    std::atomic<bool>& checked = block_checked_[static_cast<size_t>(block)];
    if (checked.load(std::memory_order_relaxed)) continue;
    const int64_t begin = block * kPermutationBlockBytes;
    const int64_t size = std::min(kPermutationBlockBytes, payload_bytes() - begin);
    if (Xxh3(file_.bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(size))) !=
        block_hashes_[static_cast<size_t>(block)]) {
      return DataLossError("{}: bytes {} to {} are damaged; remove it, it will be built again",
                           path(), begin, begin + size);
    }
    checked.store(true, std::memory_order_relaxed);
  }
  return {};
}

Status PermutationFile::Read(int64_t first, std::span<int64_t> entries) const {
  const auto count = static_cast<int64_t>(entries.size());
  CHECK(first >= 0 && first + count <= id_.size, "entries {} to {} of {}", first, first + count,
        id_.size);
  const int64_t element_bytes = id_.element_bytes();
  TRY(CheckBlocks(first * element_bytes, (first + count) * element_bytes));
  const std::byte* bytes = file_.bytes().data() + first * element_bytes;
  for (size_t k = 0; k < entries.size(); ++k) {
    uint64_t entry = 0;  // little-endian: a narrower entry fills the low bytes
    std::memcpy(&entry, bytes + k * static_cast<size_t>(element_bytes),
                static_cast<size_t>(element_bytes));
    if (entry >= static_cast<uint64_t>(id_.size)) {
      return DataLossError("{}: entry {} is {}, beyond the {} instances", path(),
                           first + static_cast<int64_t>(k), entry, id_.size);
    }
    entries[k] = static_cast<int64_t>(entry);
  }
  return {};
}

Status PermutationFile::Verify() const { return CheckBlocks(0, payload_bytes()); }

Result<PermutationFileWriter> PermutationFileWriter::Create(const Path& path,
                                                            const PermutationId& id) {
  return PermutationFileWriter(TRY(AtomicFile::Create(path)), id);
}

Status PermutationFileWriter::Write(std::span<const std::byte> entries) {
  TRY(file_.Write(entries));
  while (!entries.empty()) {
    const int64_t room = kPermutationBlockBytes - bytes_ % kPermutationBlockBytes;
    const size_t piece = std::min(entries.size(), static_cast<size_t>(room));
    block_.Update(entries.first(piece));
    entries = entries.subspan(piece);
    bytes_ += static_cast<int64_t>(piece);
    if (bytes_ % kPermutationBlockBytes == 0) {
      block_hashes_.push_back(block_.digest());
      block_ = Xxh3Stream();
    }
  }
  return {};
}

Status PermutationFileWriter::Commit() {
  if (bytes_ != id_.size * id_.element_bytes()) {
    return InternalError("permutation of {}: {} bytes written, expected {}", id_.size, bytes_,
                         id_.size * id_.element_bytes());
  }
  if (bytes_ % kPermutationBlockBytes != 0) block_hashes_.push_back(block_.digest());
  const std::array<std::byte, 8> zeros{};
  TRY(file_.Write(std::span(zeros).first(static_cast<size_t>(RoundUp(bytes_, 8) - bytes_))));
  const auto table = std::as_bytes(std::span<const uint64_t>(block_hashes_));
  TRY(file_.Write(table));
  Trailer trailer = {.magic = kMagic,
                     .version = kVersion,
                     .element_bytes = static_cast<uint32_t>(id_.element_bytes()),
                     .size = static_cast<uint64_t>(id_.size),
                     .seed = id_.seed,
                     .block_bytes = kPermutationBlockBytes,
                     .table_hash = Xxh3(table)};
  trailer.trailer_hash = HashOf(trailer);
  TRY(file_.Write(BytesOf(trailer)));
  return file_.Commit();
}

}  // namespace ulmus::data
