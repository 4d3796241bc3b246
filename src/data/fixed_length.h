// Datasets of fixed-length pieces of files: instance i of a file is its tokens [i*T, (i+1)*T).
// Documents may be cut, nothing is inserted, the rest of each file is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/fingerprint.h"
#include "data/instance_source.h"
#include "data/token_files.h"

namespace ulmus::data {

struct FixedLengthOptions {
  int64_t sequence_length = 0;
  // M: files are cut to multiples of M tokens, so that the data stays the same when T grows to M.
  // 0: none. A multiple of T.
  int64_t max_target_sequence_length = 0;
  TokenizerIds ids = {};
};

// All full instances of all files, in order. OLMo-core's NumpyFSLDataset, with its fingerprint.
// kInvalidArgument if there is not one instance, with the numbers.
Result<std::unique_ptr<InstanceSource>> MakeFixedLength(std::shared_ptr<const TokenFiles> files,
                                                        const FixedLengthOptions& options);

// One stretch of instances: the first `num_instances` of a file, read for the `pass`-th time.
struct FixedLengthEntry {
  int64_t file = 0;
  int64_t num_instances = 0;
  int64_t pass = 0;
};

// What another format (an index, a mixture) makes of the same pieces.
struct FixedLengthIdentity {
  std::string fingerprint;
  std::string fingerprint_version;
};
Result<std::unique_ptr<InstanceSource>> MakeFixedLength(std::shared_ptr<const TokenFiles> files,
                                                        const FixedLengthOptions& options,
                                                        std::vector<FixedLengthEntry> entries,
                                                        FixedLengthIdentity identity);

// Full instances in a file of so many tokens: floor(n/M) * (M/T).
int64_t FixedLengthInstances(int64_t num_tokens, const FixedLengthOptions& options);
// kInvalidArgument unless 0 < T, and M is 0 or a multiple of T.
Status Validate(const FixedLengthOptions& options);

}  // namespace ulmus::data
