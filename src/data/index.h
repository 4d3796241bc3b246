// The index JSON of MaxText's olmo_grain input: files with their token and instance counts.
// docs/formats/index_json.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/fingerprint.h"
#include "data/instance_source.h"
#include "data/mix_list.h"
#include "data/token_files.h"

namespace ulmus::data {

struct IndexFile {
  std::string path;
  std::string label;
  int64_t n_tokens = 0;
  int64_t n_instances = 0;      // n_tokens / sequence_length
  int64_t instance_offset = 0;  // instances of the files before
  friend bool operator==(const IndexFile&, const IndexFile&) = default;
};

struct Index {
  int64_t sequence_length = 0;
  DType dtype = DType::kU32;  // as NumPy spells it in the file: "uint32"
  std::string tokenizer = {};
  int64_t total_instances = 0;
  int64_t total_tokens = 0;
  std::string fingerprint = {};
  std::vector<IndexFile> files = {};
  friend bool operator==(const Index&, const Index&) = default;
};

// Fills counts, offsets, totals and fingerprint from sequence_length, dtype, tokenizer and the
// paths, labels and n_tokens of the files.
Status CompleteIndex(Index& index);

// "sha256:" + hex over version, sequence_length, dtype, tokenizer, then path and n_tokens of each
// file, each with a NUL after it. Source: MaxText, olmo_grain, index fingerprint.
std::string IndexFingerprint(const Index& index);

// Read piece by piece: memory is that of the result. kDataLoss if it is no JSON, is cut, or
// contradicts itself (counts, offsets, totals, fingerprint); unknown keys are passed over.
Result<Index> ReadIndex(const Path& path);
Result<Index> ParseIndex(std::string_view json, std::string_view origin);
std::string PrintIndex(const Index& index);
Status WriteIndex(const Path& path, const Index& index);

struct IndexedOptions {
  TokenizerIds ids = {};
  int64_t sequence_length = 0;  // the run's; must be the index's. 0: not checked
  Path base = {};               // of relative paths
  std::vector<PathRemap> remaps = {};
};
// The instances of an index, with its fingerprint: those of a fixed-length dataset of its files.
// kDataLoss names a file that holds another number of tokens than the index says.
Result<std::unique_ptr<InstanceSource>> MakeIndexed(const Index& index,
                                                    const IndexedOptions& options);

}  // namespace ulmus::data
