// Source mixtures: how many instances of each file make up a dataset of given proportions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/fixed_length.h"
#include "data/instance_source.h"
#include "data/token_files.h"

namespace ulmus::data {

// Consecutive files of a TokenFiles. OLMo-core: SourceMixtureConfig.
struct MixtureSource {
  std::string label;
  std::vector<int64_t> file_tokens = {};  // tokens of each of its files
  double target_ratio = 0;                // share of the mixture; all sources sum to 1
  double max_repetition_ratio = 1;        // above 1: tokens may be used so many times
  double max_source_fraction = 1;         // share of the source that may be used
};

struct MixtureOptions {
  int64_t requested_tokens = 0;
  int64_t global_batch_tokens = 0;  // the total is rounded up to whole batches of it
  int64_t sequence_length = 0;
  int64_t max_target_sequence_length = 0;  // 0: none; shares are then counted in pieces of it
  // OLMo-core's rounding can end a few instances beside the total. Exact goes on until it is met,
  // or refuses; where OLMo-core meets it, both agree.
  bool exact = true;
};

// The first num_instances of a file: OLMo-core prepares sampled positions, but reads these.
struct MixtureEntry {
  int64_t source = 0;
  int64_t file = 0;  // of all files of all sources
  int64_t pass = 0;  // 1 and up: the file's tokens are repeated
  int64_t num_instances = 0;
  int64_t max_instances = 0;  // full instances of the file
};

struct MixturePlan {
  std::vector<MixtureEntry> entries;  // sources in order, passes in order, files in order
  int64_t target_instances = 0;       // whole batches that hold requested_tokens
  int64_t num_instances = 0;          // = target_instances if exact
};

// kInvalidArgument with the numbers if ratios do not sum to 1, a source has too few tokens, or the
// total cannot be met. Source: OLMo-core data/source_mixture.py, SourceMixtureDatasetConfig.build.
Result<MixturePlan> PlanMixture(std::span<const MixtureSource> sources,
                                const MixtureOptions& options);

// A table for people: asked and given share, instances, passes and unused tokens of each source.
std::string ExplainMixture(std::span<const MixtureSource> sources, const MixtureOptions& options,
                           const MixturePlan& plan);

// The dataset of a plan; `files` are those of all sources in order. OLMo-core's
// NumpyFSLDatasetMixture, with its fingerprint.
Result<std::unique_ptr<InstanceSource>> MakeMixture(std::shared_ptr<const TokenFiles> files,
                                                    const MixtureOptions& options,
                                                    const MixturePlan& plan,
                                                    const TokenizerIds& ids);

}  // namespace ulmus::data
