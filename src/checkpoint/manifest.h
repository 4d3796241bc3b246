// manifest.json: size and checksum of every file of a checkpoint. Written last, it is the commit: a
// directory without a valid one is no checkpoint. docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "checkpoint/zarr_store.h"

namespace ulmus::checkpoint {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

struct ManifestFile {
  int64_t size_bytes = 0;
  Hash128 hash;  // XXH3, 128 bits
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  int64_t step = 0;                           // completed optimizer steps
  std::map<std::string, ManifestFile> files;  // by key; without the manifest itself
  int64_t total_bytes() const;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// One file a line, sorted; the last line holds the checksum of all before it.
std::string ManifestText(const Manifest& manifest);
// Accepts exactly what ManifestText writes: any other byte is kDataLoss.
Result<Manifest> ParseManifest(std::string_view text);
// kDataLoss, with what to do, if there is none or it is damaged.
Result<Manifest> LoadManifest(const ReadStore& store);

struct Damage {
  std::string file;
  std::string
      what;  // "missing", "12 bytes, 16 expected", "checksum differs", "not in the manifest"
  friend bool operator==(const Damage&, const Damage&) = default;
};

struct VerifyOptions {
  bool full = true;  // read every byte; otherwise names and sizes only
  int threads = 2;
};

// Every file that is damaged, missing or extra, by name. An error only if the store itself cannot
// be read.
Result<std::vector<Damage>> VerifyFiles(const ReadStore& store, const Manifest& manifest,
                                        const VerifyOptions& options = {});
// "a, b and 3 more", with what is wrong with each.
std::string DamageText(const std::vector<Damage>& damaged);

}  // namespace ulmus::checkpoint
