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
// between the blocks of a file beyond 1 MiB. A fingerprint knows names and sizes only.
struct FileIdentity {
  std::string name;  // without folders, as fingerprints take it
  int64_t size_bytes = 0;
  uint64_t sample_hash = 0;  // XXH3 of 17 blocks of 64 KiB, or of all of a file up to 1 MiB
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// Reads 1.1 MiB at most.
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
  kSamples,  // sizes and sample hashes: every start
  kHashes,   // sizes and SHA-256, reads all files: on request
};
// kDataLoss names the first file beside the manifest that is missing or is not what it says. A
// manifest without sample hashes gets a line in the log.
Status CheckAgainstManifest(const Path& manifest, ManifestCheck check);

}  // namespace ulmus::data
