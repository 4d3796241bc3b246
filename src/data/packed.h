// Datasets whose instances are made of whole documents: packed (training at long sequences) and
// padded (evaluation, one document each). Documents come from FindDocumentEnds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/fingerprint.h"
#include "data/instance_source.h"
#include "data/token_files.h"

namespace ulmus::data {

// What happens to documents longer than T.
enum class LongDocuments {
  kTruncate,  // the first T tokens stay, the rest is dropped
  kFragment,  // cut into pieces of T tokens, all kept
};

struct PackedOptions {
  int64_t sequence_length = 0;
  TokenizerIds ids = {};
  LongDocuments long_documents = LongDocuments::kTruncate;
  int64_t source_group_size = 1;  // consecutive files packed together; OLMo 3 stage 3: 8
  // Keeps where documents are between runs (packing_file.h); empty: looks for them at every start.
  Path cache_dir = {};
  int64_t cache_from_tokens = int64_t{1} << 26;  // fewer are looked through in no time
};

// OLMo-core's NumpyPackedFSLDataset, with its fingerprint; ties as PackBestFit says. Files are
// scanned by several threads when made. kInvalidArgument if there is no document.
Result<std::unique_ptr<InstanceSource>> MakePacked(std::shared_ptr<const TokenFiles> files,
                                                   const PackedOptions& options);

// One instance per document, cut to T tokens, padded on the right. OLMo-core's
// NumpyPaddedFSLDataset.
Result<std::unique_ptr<InstanceSource>> MakePadded(std::shared_ptr<const TokenFiles> files,
                                                   int64_t sequence_length, const TokenizerIds& ids,
                                                   Path cache_dir = {});

// `specs` in the order of OLMo-core's source_permutation_seed (123 in OLMo 3 stage 3).
std::vector<TokenFileSpec> PermuteFiles(std::vector<TokenFileSpec> specs, uint64_t seed);

}  // namespace ulmus::data
