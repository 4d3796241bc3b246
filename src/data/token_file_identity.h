// Whether the files of a dataset are still those that a run began with, or that a manifest
// describes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/token_files.h"

namespace ulmus::data {

// Size and a hash of blocks from all over the file: cheap enough for every start, blind to a change
// between the blocks. A fingerprint knows names and sizes only.
struct FileIdentity {
  std::string name;  // without folders, as fingerprints take it
  int64_t size_bytes = 0;
  uint64_t sample_hash = 0;  // XXH3 of 16 blocks of 4 KiB, or of all of a smaller file
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

Result<FileIdentity> IdentifyFile(const Path& path);
enum class Sidecars {
  kPassOver,
  kIdentify,  // they decide where documents end
};
// Each token file, then its label mask and its sidecar if it has them. Several threads.
Result<std::vector<FileIdentity>> IdentifyFiles(const TokenFiles& files,
                                                Sidecars sidecars = Sidecars::kPassOver);

// kDataLoss names the first file that differs and how; `saved` is what the run began with.
Status CompareIdentities(std::span<const FileIdentity> saved, std::span<const FileIdentity> now);

// JSON, to be kept beside a run.
std::string PrintIdentities(std::span<const FileIdentity> identities);
Result<std::vector<FileIdentity>> ParseIdentities(std::string_view json, std::string_view origin);

enum class ManifestCheck {
  kSizes,   // every start
  kHashes,  // reads all files: on request
};
// kDataLoss names the first file beside the manifest whose size or SHA-256 is not what it says.
Status CheckAgainstManifest(const Path& manifest, ManifestCheck check);

}  // namespace ulmus::data
