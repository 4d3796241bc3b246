#include "data/packing_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/hash.h"
#include "data/document_ends.h"  // SidecarPath
#include "data/token_file_identity.h"

namespace ulmus::data {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is mapped as it is");
static_assert(sizeof(PackedPiece) == 16);

struct Header {
  char magic[8] = {'U', 'L', 'M', 'P', 'A', 'C', 'K', '\n'};
  uint64_t version = 1;
  char key[64] = {};
  uint64_t num_instances = 0;
  uint64_t num_pieces = 0;
  uint64_t content_hash = 0;  // XXH3 of ends and pieces
  uint64_t header_hash = 0;   // XXH3 of all before
};
static_assert(sizeof(Header) == 112);

uint64_t HashOf(const Header& header) {
  return Xxh3(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_hash)));
}

Header MakeHeader(const std::string& key, const PackedPlan& plan) {
  Header header;
  std::ranges::copy_n(key.begin(), sizeof(header.key), header.key);
  header.num_instances = plan.ends().size();
  header.num_pieces = plan.pieces().size();
  Xxh3Stream hash;
  hash.Update(std::as_bytes(plan.ends()));
  hash.Update(std::as_bytes(plan.pieces()));
  header.content_hash = hash.digest();
  header.header_hash = HashOf(header);
  return header;
}

// Whatever the file says, no reader goes beyond a file or this plan.
bool Fits(std::span<const PackedPiece> pieces, std::span<const int64_t> ends,
          const TokenFiles& files) {
  int64_t before = 0;
  for (const int64_t end : ends) {
    if (end <= before) return false;
    before = end;
  }
  if (before != static_cast<int64_t>(pieces.size())) return false;
  return std::ranges::all_of(pieces, [&files](const PackedPiece& piece) {
    return piece.file >= 0 && piece.file < files.size() && piece.num_tokens > 0 &&
           piece.first_token >= 0 &&
           piece.first_token <= files.num_tokens(piece.file) - piece.num_tokens;
  });
}

Result<std::string> ChangedAt(const Path& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error) return ErrnoError(error.value(), path, "look at");
  return std::to_string(time.time_since_epoch().count());
}

}  // namespace

PackedPlan::PackedPlan(std::vector<PackedPiece> pieces, std::vector<int64_t> ends)
    : own_pieces_(std::move(pieces)),
      own_ends_(std::move(ends)),
      pieces_(own_pieces_),
      ends_(own_ends_) {}

Result<PackedPlan> PackedPlan::Open(const Path& path, const std::string& key,
                                    const TokenFiles& files) {
  PackedPlan plan;
  plan.file_ = TRY(MappedFile::Open(path));
  const auto bytes = plan.file_.bytes();
  const auto damaged = [&path](std::string_view what) {
    return DataLossError("{}: {}; it is made anew if it is removed", path, what);
  };
  Header header;
  if (bytes.size() < sizeof(header)) return damaged("cut short");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, Header().magic, sizeof(header.magic)) != 0 || header.version != 1)
    return damaged("no packing file of version 1");
  if (header.header_hash != HashOf(header)) return damaged("its header is damaged");
  if (std::string_view(header.key, sizeof(header.key)) != key)
    return damaged("it belongs to another dataset");
  const uint64_t content = bytes.size() - sizeof(header);
  if (header.num_instances > content / sizeof(int64_t) ||
      header.num_pieces > content / sizeof(PackedPiece) ||
      header.num_instances * sizeof(int64_t) + header.num_pieces * sizeof(PackedPiece) != content)
    return damaged("its size is not what its header says");
  const std::byte* ends = bytes.data() + sizeof(header);
  plan.ends_ = {reinterpret_cast<const int64_t*>(ends), header.num_instances};
  plan.pieces_ = {
      reinterpret_cast<const PackedPiece*>(ends + header.num_instances * sizeof(int64_t)),
      header.num_pieces};
  if (Xxh3(bytes.subspan(sizeof(header))) != header.content_hash)
    return damaged("its content is damaged");
  if (!Fits(plan.pieces_, plan.ends_, files)) return damaged("it does not fit the token files");
  return plan;
}

Result<std::string> PackingKey(const std::string& settings, const TokenFiles& files) {
  Sha256 hash;
  hash.Update(settings);
  for (const FileIdentity& file : TRY(IdentifyFiles(files, Sidecars::kIdentify)))
    hash.Update(fmt::format("\n{}\n{}\n{}", file.name, file.size_bytes, file.sample_hash));
  // A sample hash is blind between its blocks.
  for (const TokenFileSpec& spec : files.specs()) {
    hash.Update("\n" + TRY(ChangedAt(spec.path)));
    const Path sidecar = SidecarPath(spec.path);
    const bool has_sidecar = TRY(PathExists(sidecar));
    hash.Update("\n" + (has_sidecar ? TRY(ChangedAt(sidecar)) : std::string("-")));
  }
  return hash.hex();
}

std::string PackingFileName(const std::string& key) { return key.substr(0, 32) + ".packing"; }

Status WritePackedPlan(const Path& path, const std::string& key, const PackedPlan& plan) {
  const Header header = MakeHeader(key, plan);
  TRY(CreateDirectories(path.parent_path()));
  AtomicFile file = TRY(AtomicFile::Create(path));
  TRY(file.Write(std::as_bytes(std::span(&header, 1))));
  TRY(file.Write(std::as_bytes(plan.ends())));
  TRY(file.Write(std::as_bytes(plan.pieces())));
  return file.Commit();
}

}  // namespace ulmus::data
