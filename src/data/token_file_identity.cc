#include "data/token_file_identity.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "data/document_ends.h"  // SidecarPath
#include "data/manifest.h"
#include "data/parallel.h"

namespace ulmus::data {
namespace {

using Json = nlohmann::ordered_json;

// An odd number of blocks, so that one lies in the middle; of such a size that a network file
// system takes little longer for them than for single bytes.
constexpr int64_t kBlockBytes = 64 << 10;
constexpr int64_t kBlocks = 17;
constexpr int64_t kWholeBytes = 1 << 20;
constexpr int64_t kThreads = 16;  // they wait for disks and networks, hardly for cores

Result<std::string> Sha256OfFile(const Path& path) {
  constexpr size_t kPieceBytes = 1 << 20;
  const MappedFile file = TRY(MappedFile::Open(path));
  Sha256 hash;
  Progress progress(fmt::format("hash {}", path.filename()), file.size_bytes(), {.unit = "bytes"});
  for (auto rest = file.bytes(); !rest.empty();) {
    const auto piece = rest.first(std::min(rest.size(), kPieceBytes));
    hash.Update(piece);
    rest = rest.subspan(piece.size());
    progress.Add(static_cast<int64_t>(piece.size()));
  }
  return hash.hex();
}

constexpr std::string_view kRestore = "restore it, or make all again with `tokenize --restart`";

Status CheckSize(const Path& path, const ManifestPart& part, const Path& manifest) {
  if (!TRY(PathExists(path)))
    return DataLossError("{}: missing, but {} lists it; {}", path, manifest, kRestore);
  const int64_t bytes = TRY(FileSizeBytes(path));
  if (bytes == part.bytes) return Status();
  return DataLossError("{}: {} bytes, but {} says {}; the file was cut or replaced: {}", path,
                       bytes, manifest, part.bytes, kRestore);
}

Status CheckSample(const Path& path, const ManifestPart& part, const Path& manifest) {
  const uint64_t hash = TRY(IdentifyFile(path)).sample_hash;
  if (hash == part.sample_hash) return Status();
  return DataLossError("{}: sample hash {}, but {} says {}; the content changed: {}", path,
                       PrintSampleHash(hash), manifest, PrintSampleHash(*part.sample_hash),
                       kRestore);
}

Status CheckSha256(const Path& path, const ManifestPart& part, const Path& manifest) {
  const std::string sha256 = TRY(Sha256OfFile(path));
  if (sha256 == part.sha256) return Status();
  return DataLossError("{}: SHA-256 {}, but {} says {}; the content changed: {}", path, sha256,
                       manifest, part.sha256, kRestore);
}

std::vector<ManifestPart> PartsOf(const Manifest& manifest) {
  std::vector<ManifestPart> parts;
  for (const ManifestFile& file : manifest.files) {
    parts.push_back(file.part);
    if (file.sidecar) parts.push_back(*file.sidecar);
  }
  return parts;
}

}  // namespace

Result<FileIdentity> IdentifyFile(const Path& path) {
  const auto file = TRY(TokenFile::Open(path, {.dtype = DType::kU8, .map = false}));
  FileIdentity identity{.name = path.filename(), .size_bytes = file->size_bytes()};
  Xxh3Stream hash;
  std::vector<std::byte> block;
  const bool small = identity.size_bytes <= kWholeBytes;
  const int64_t count = small ? 1 : kBlocks;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bytes = small ? identity.size_bytes : kBlockBytes;
    block.resize(static_cast<size_t>(bytes));
    const int64_t step = small ? 0 : (identity.size_bytes - kBlockBytes) / (kBlocks - 1);
    const int64_t offset = i + 1 == count ? identity.size_bytes - bytes : i * step;
    TRY(file->ReadBytes(offset, block));
    hash.Update(block);
  }
  identity.sample_hash = hash.digest();
  return identity;
}

Result<std::vector<FileIdentity>> IdentifyFiles(const TokenFiles& files, Sidecars sidecars) {
  std::vector<std::vector<FileIdentity>> found(static_cast<size_t>(files.size()));
  const auto identify = [&](int64_t i) -> Status {
    const TokenFileSpec& spec = files.spec(i);
    auto& identities = found[static_cast<size_t>(i)];
    identities.push_back(TRY(IdentifyFile(spec.path)));
    if (!spec.label_mask.empty()) identities.push_back(TRY(IdentifyFile(spec.label_mask)));
    const Path sidecar = SidecarPath(spec.path);
    if (sidecars == Sidecars::kIdentify && TRY(PathExists(sidecar)))
      identities.push_back(TRY(IdentifyFile(sidecar)));
    return Status();
  };
  TRY(ForAll(files.size(), {.name = "identify files", .unit = "files", .threads_at_most = kThreads},
             identify));
  std::vector<FileIdentity> identities;
  for (std::vector<FileIdentity>& of_file : found)
    std::ranges::move(of_file, std::back_inserter(identities));
  return identities;
}

Status CompareIdentities(std::span<const FileIdentity> saved, std::span<const FileIdentity> now) {
  constexpr std::string_view kRemedy = "restore the file, or start a new run";
  for (size_t i = 0; i < std::min(saved.size(), now.size()); ++i) {
    if (saved[i].name != now[i].name)
      return DataLossError("file {} of the dataset is {}, the run began with {}; {}", i,
                           now[i].name, saved[i].name, kRemedy);
    if (saved[i].size_bytes != now[i].size_bytes)
      return DataLossError("{}: {} bytes, the run began with {}; {}", now[i].name,
                           now[i].size_bytes, saved[i].size_bytes, kRemedy);
    if (saved[i].sample_hash != now[i].sample_hash)
      return DataLossError(
          "{}: its content is not what the run began with (sample hash {:016x}, was "
          "{:016x}); {}",
          now[i].name, now[i].sample_hash, saved[i].sample_hash, kRemedy);
  }
  if (saved.size() != now.size())
    return DataLossError(
        "the dataset has {} files, the run began with {}; restore the list, or start "
        "a new run",
        now.size(), saved.size());
  return Status();
}

std::string PrintIdentities(std::span<const FileIdentity> identities) {
  Json files = Json::array();
  for (const FileIdentity& identity : identities) {
    files.push_back({{"name", identity.name},
                     {"size_bytes", identity.size_bytes},
                     {"sample_hash", PrintSampleHash(identity.sample_hash)}});
  }
  return Json({{"files", std::move(files)}}).dump(1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

Result<std::vector<FileIdentity>> ParseIdentities(std::string_view json, std::string_view origin) {
  const auto damaged = [&] {
    return DataLossError("{}: damaged; it is written anew if it is removed", origin);
  };
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("files") || !parsed["files"].is_array())
    return damaged();
  std::vector<FileIdentity> identities;
  for (const Json& file : parsed["files"]) {
    if (!file.is_object() || !file.contains("name") || !file["name"].is_string() ||
        !file.contains("size_bytes") || !file["size_bytes"].is_number_integer() ||
        !file.contains("sample_hash") || !file["sample_hash"].is_string())
      return damaged();
    const auto hash = ParseSampleHash(file["sample_hash"].get_ref<const std::string&>());
    if (!hash) return damaged();
    identities.push_back({.name = file["name"].get<std::string>(),
                          .size_bytes = file["size_bytes"].get<int64_t>(),
                          .sample_hash = *hash});
  }
  return identities;
}

Status CheckAgainstManifest(const Path& manifest, ManifestCheck check) {
  const std::vector<ManifestPart> parts = PartsOf(TRY(ReadManifest(manifest)));
  const auto path_of = [&](size_t i) { return manifest.parent_path() / parts[i].name; };
  const auto look = [&](int64_t i) -> Status {
    const auto part = static_cast<size_t>(i);
    TRY(CheckSize(path_of(part), parts[part], manifest));
    if (check != ManifestCheck::kSamples || !parts[part].sample_hash) return Status();
    return CheckSample(path_of(part), parts[part], manifest);
  };
  TRY(ForAll(static_cast<int64_t>(parts.size()),
             {.name = "compare files", .unit = "files", .threads_at_most = kThreads}, look));
  if (check == ManifestCheck::kHashes) {
    for (size_t i = 0; i < parts.size(); ++i) TRY(CheckSha256(path_of(i), parts[i], manifest));
  } else if (std::ranges::any_of(parts, [](const auto& part) { return !part.sample_hash; })) {
    LogInfo("{}: has no sample hashes; of its files only the sizes were compared", manifest);
  }
  return Status();
}

}  // namespace ulmus::data
