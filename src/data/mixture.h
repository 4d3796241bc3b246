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

// How a source came to its instances: num_instances = whole + even + remainder + exact.
struct MixtureSourcePlan {
  int64_t tokens = 0;            // of its files
  int64_t available_tokens = 0;  // with its fraction and repetitions
  int64_t asked_tokens = 0;      // requested_tokens x target_ratio, rounded down
  int64_t whole = 0;             // full instances of the tokens asked of each file
  int64_t even = 0;              // its files' even part of what the total lacks then
  int64_t remainder = 0;         // one each for its files with the largest remainders
  int64_t exact = 0;             // more or fewer, until the total is met
  int64_t num_instances = 0;
  int64_t passes = 0;         // over its files
  int64_t unused_tokens = 0;  // that no pass reads
};

struct MixturePlan {
  std::vector<MixtureEntry> entries;       // sources in order, passes in order, files in order
  std::vector<MixtureSourcePlan> sources;  // one each
  int64_t target_instances = 0;            // whole batches that hold requested_tokens
  int64_t num_instances = 0;               // = target_instances if exact
};

// kInvalidArgument with the numbers if ratios do not sum to 1, a source has too few tokens, or the
// total cannot be met. Source: OLMo-core data/source_mixture.py, SourceMixtureDatasetConfig.build.
Result<MixturePlan> PlanMixture(std::span<const MixtureSource> sources,
                                const MixtureOptions& options);

// The share that a source has of a plan.
double GivenRatio(const MixtureSourcePlan& source, const MixturePlan& plan);

// Tables for people. Of each source: tokens, asked and given share, instances, passes.
std::string ExplainMixture(std::span<const MixtureSource> sources, const MixtureOptions& options,
                           const MixturePlan& plan);
// How the instances were apportioned, step by step.
std::string ExplainRounding(std::span<const MixtureSource> sources, const MixtureOptions& options,
                            const MixturePlan& plan);

// The dataset of a plan; `files` are those of all sources in order. OLMo-core's
// NumpyFSLDatasetMixture, with its fingerprint.
Result<std::unique_ptr<InstanceSource>> MakeMixture(std::shared_ptr<const TokenFiles> files,
                                                    const MixtureOptions& options,
                                                    const MixturePlan& plan,
                                                    const TokenizerIds& ids);

}  // namespace ulmus::data
