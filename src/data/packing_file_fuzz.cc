// Any bytes as a packing file, and the same with right hashes: refused, or pieces that lie in the
// token files.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/packing_file.h"

namespace {

using namespace ulmus;
using namespace ulmus::data;

const std::string kKey(64, 'k');
// docs/formats/packing_file.md
constexpr size_t kHeaderBytes = 112;
constexpr size_t kKeyAt = 16;
constexpr size_t kContentHashAt = 96;
constexpr size_t kHeaderHashAt = 104;

std::shared_ptr<const TokenFiles> MakeFiles(const Path& folder) {
  std::vector<TokenFileSpec> specs;
  for (const size_t tokens : {size_t{100}, size_t{7}}) {
    const Path path = folder / fmt::format("{}.npy", tokens);
    CHECK(WriteFileAtomic(path, std::string(4 * tokens, '\0')).ok());
    specs.push_back({.path = path});
  }
  return *TokenFiles::Open(std::move(specs));
}

void Open(const Path& path, std::span<const std::byte> bytes, const TokenFiles& files) {
  CHECK(WriteFileAtomic(path, bytes).ok());
  const Result<PackedPlan> plan = PackedPlan::Open(path, kKey, files);
  if (!plan.ok()) return;
  int64_t before = 0;
  for (const int64_t end : plan->ends()) {
    CHECK(end > before && end <= static_cast<int64_t>(plan->pieces().size()));
    before = end;
  }
  for (const PackedPiece& piece : plan->pieces()) {
    std::vector<int32_t> tokens(static_cast<size_t>(piece.num_tokens));
    CHECK(files.Read(piece.file, piece.first_token, tokens).ok());
  }
}

// So that what lies behind the hashes is reached.
void Seal(std::span<std::byte> bytes) {
  std::memcpy(bytes.data(), "ULMPACK\n\1\0\0\0\0\0\0", kKeyAt);
  std::memcpy(bytes.data() + kKeyAt, kKey.data(), kKey.size());
  const uint64_t content = Xxh3(bytes.subspan(kHeaderBytes));
  std::memcpy(bytes.data() + kContentHashAt, &content, sizeof(content));
  const uint64_t header = Xxh3(bytes.first(kHeaderHashAt));
  std::memcpy(bytes.data() + kHeaderHashAt, &header, sizeof(header));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const TempDir dir;
  static const std::shared_ptr<const TokenFiles> files = MakeFiles(dir.path());
  const auto given = std::as_bytes(std::span(data, size));
  std::vector<std::byte> bytes(given.begin(), given.end());
  const Path path = dir.path() / "a.packing";
  Open(path, bytes, *files);
  if (bytes.size() < kHeaderBytes) return 0;
  Seal(bytes);
  Open(path, bytes, *files);
  // The counts that fit the size, for some number of instances: else they hardly ever do.
  const uint64_t words = (bytes.size() - kHeaderBytes) / 8;
  const uint64_t pieces = std::to_integer<uint64_t>(bytes[88]) % (words / 2 + 1);
  const std::array<uint64_t, 2> counts = {words - 2 * pieces, pieces};
  std::memcpy(bytes.data() + 80, counts.data(), sizeof(counts));
  bytes.resize(kHeaderBytes + words * 8);
  Seal(bytes);
  Open(path, bytes, *files);
  return 0;
}
