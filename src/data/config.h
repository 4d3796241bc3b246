// The [data] table of a recipe, and the data it describes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/recipe_struct.h"
#include "base/status.h"
#include "data/batch.h"
#include "data/instance_source.h"
#include "data/loader.h"
#include "data/loader_state.h"
#include "data/mixture.h"
#include "data/order.h"

namespace ulmus::data {

// A share of a mixture: [[data.sources]].
struct SourceConfig {
  std::string label;
  std::vector<std::string> paths;  // else the entries of data.mix_list with this label
  double target_ratio = 0;
  double max_repetition_ratio = 1;
  double max_source_fraction = 1;
};

struct DataConfig {
  // Files: exactly one of paths, mix_list and index, or [[sources]] with their own.
  std::vector<std::string> paths;
  std::vector<std::string> label_masks;
  std::string mix_list;
  std::string index;
  std::vector<SourceConfig> sources;
  int64_t mixture_tokens = 0;
  bool mixture_exact = true;
  bool verify_files = false;
  std::string base_dir;
  std::vector<std::string> path_remaps;
  // Tokens. OLMo-core: TokenizerConfig.dolma2().
  std::string dtype = "u32";
  int64_t vocab_size = 100278;
  int64_t eos_id = 100257;
  int64_t pad_id = 100277;
  int64_t bos_id = -1;
  // Instances.
  std::string dataset = "fixed_length";
  int64_t sequence_length = 8192;  // OLMo 3 stages 1 and 2
  int64_t max_target_sequence_length = 0;
  std::string long_documents = "truncate";
  int64_t source_group_size = 1;
  int64_t source_permutation_seed = -1;
  std::string select;
  bool document_mask = false;
  // Batches.
  int64_t global_batch = 512;  // OLMo 3 7B: 4 Mi tokens
  std::string order = "auto";
  int64_t seed = 34521;  // OLMo 3 stage 1: NumpyDataLoaderConfig.seed
  std::string end = "stop";
  std::string ngram_filter = "off";
  int64_t ngram_min_period = 1;
  int64_t ngram_max_period = 13;
  int64_t ngram_max_count = 32;
  std::string loss_divisor = "olmo_core";
  std::string accept_fingerprint;
  // This machine; changes no batch.
  std::string cache_dir;
  std::string order_file;
  int64_t loader_threads = 2;
  int64_t read_ahead = 4;
};

const StructSchema<DataConfig>& DataSchema();

// What a training step reads. A run:
//
//   Data data = start ? OpenData(config) : ResumeData(config, state);      // TRY left out
//   data.loader.layout = {.num_microbatches = m, .num_hosts = w, .devices_per_host = d};
//   data.loader.host = r;                                   // batch_size is the order's
//   auto loader = Loader::Create(*data.source, *data.order, data.loader);
//   while (const Batch* batch = loader->Next()) {           // null: the data ends here
//     ...                                                   // step batch->step, rows of host r
//     consumed.Add(batch->global_ids);                      // the same value on every host
//   }
//   LoaderState state = StateBefore(loader->next_step(), data, total_tokens, consumed);
//   write(PrintLoaderState(state));                         // ParseLoaderState reads it
//
// `consumed` and `total_tokens` go on from state.consumed and state.total_tokens. `data` must
// outlive the loader. Loader::SeekTo(step) reads any step, forwards or back, of the same data.
struct Data {
  std::unique_ptr<InstanceSource> source;
  std::unique_ptr<GlobalOrder> order;
  LoaderOptions loader;             // without layout, host and last step
  std::vector<FileIdentity> files;  // as they are now
};

// kInvalidArgument names the key and the numbers: files given twice or not at all, sizes that do
// not fit each other, no instance, or zero batches. kDataLoss names the file that is cut, has
// another width, or is not what its manifest says. Looks at a sample of each file; builds no
// permutation.
Result<Data> OpenData(const DataConfig& config);

// What a checkpoint keeps: the state before `step`. `total_tokens` and `consumed` are the caller's
// running sums.
Result<LoaderState> StateBefore(int64_t step, const Data& data, int64_t total_tokens,
                                const ConsumedIds& consumed);

// The data from where `state` was taken on: loader.first_step is set, and the order has the
// checkpoint's seed. Errors are those of OpenData and Resume; kDataLoss names the first file that
// was replaced since. data.accept_fingerprint = the state's fingerprint accepts other files.
Result<Data> ResumeData(const DataConfig& config, const LoaderState& state);
// The same from data that OpenData(config) opened: files are not looked at again.
Result<Data> ResumeData(const DataConfig& config, const LoaderState& state, Data data);

// The mixture of [[data.sources]], which OpenData reads.
struct PlannedMixture {
  std::shared_ptr<const TokenFiles> files;  // of all sources in order
  std::vector<MixtureSource> sources;
  MixtureOptions options;
  MixturePlan plan;
};
// kInvalidArgument if the recipe has no [[data.sources]], or PlanMixture refuses them.
Result<PlannedMixture> OpenMixture(const DataConfig& config);

// The parts, for commands that need only one.
Result<std::unique_ptr<InstanceSource>> OpenSource(const DataConfig& config);
Result<OrderConfig> OrderOf(const DataConfig& config, const InstanceSource& source);
PermutationStoreOptions StoreOf(const DataConfig& config);
Result<BatchOptions> BatchOptionsOf(const DataConfig& config);

}  // namespace ulmus::data
