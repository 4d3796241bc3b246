// What a set of token files is made of: written last by `ulmus tokenize`, so that it also says that
// the set is complete. Format: docs/formats/tokens_manifest.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "tensor/dtype.h"

namespace ulmus::data {

inline constexpr std::string_view kManifestSuffix = ".manifest.json";

// A file beside the manifest, by its plain name.
struct ManifestPart {
  std::string name;
  int64_t bytes = 0;
  std::string sha256;  // 64 hexadecimal digits, lower case
  std::optional<uint64_t> sample_hash =
      std::nullopt;  // of IdentifyFile; none: by an earlier version
  friend bool operator==(const ManifestPart&, const ManifestPart&) = default;
};

struct ManifestFile {
  ManifestPart part;  // headerless tokens: bytes = tokens * size of dtype
  int64_t tokens = 0;
  int64_t documents = 0;
  std::optional<ManifestPart> sidecar;  // documents by token offsets, csv.gz
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct ManifestInput {
  std::string path;  // as it was given
  int64_t bytes = 0;
  std::optional<uint64_t> sample_hash = std::nullopt;  // none: a pipe, or by an earlier version
  friend bool operator==(const ManifestInput&, const ManifestInput&) = default;
};

struct Manifest {
  DType dtype = DType::kU32;  // u8, u16, u32 or u64; holds vocab_size - 1
  int64_t vocab_size = 0;
  int32_t eos_id = 0;     // ends every document
  std::string tokenizer;  // its fingerprint; "" if not known
  int64_t tokens = 0;     // sums over the files
  int64_t documents = 0;
  int64_t empty_documents = 0;  // left out because they held nothing
  int64_t bad_records = 0;      // left out because they could not be read
  std::string settings;         // hash of all that decides the output; "" if not known
  std::vector<ManifestInput> inputs;
  std::vector<ManifestFile> files;  // in the order of their documents
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// Messages begin with `origin`. kDataLoss if it is no manifest or contradicts itself (sizes, sums,
// names that lead out of the folder), kUnimplemented for a later version.
Result<Manifest> ParseManifest(std::string_view json, std::string_view origin);
std::string PrintManifest(const Manifest& manifest);

std::string PrintSampleHash(uint64_t hash);  // 16 hexadecimal digits, lower case
std::optional<uint64_t> ParseSampleHash(std::string_view text);

Result<Manifest> ReadManifest(const Path& path);
Status WriteManifest(const Path& path, const Manifest& manifest);  // complete or not at all

}  // namespace ulmus::data
