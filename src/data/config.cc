#include "data/config.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "data/fixed_length.h"
#include "data/index.h"
#include "data/manifest.h"
#include "data/mix_list.h"
#include "data/mixture.h"
#include "data/packed.h"
#include "data/selection.h"
#include "data/sniff.h"
#include "data/token_files.h"

namespace ulmus::data {
namespace {

StructSchema<SourceConfig> SourceSchema() {
  return StructSchema<SourceConfig>()
      .Require("label", &SourceConfig::label, {.help = "name of the source"})
      .Add("paths", &SourceConfig::paths,
           {.help = "its token files or manifests, in order; none: those of data.mix_list with "
                    "this label"})
      .Require("target_ratio", &SourceConfig::target_ratio,
               {.help = "share of the mixture; all sources sum to 1", .max = 1, .above = 0})
      .Add("max_repetition_ratio", &SourceConfig::max_repetition_ratio,
           {.help = "how often its tokens may be used; above 1 they repeat", .min = 1})
      .Add("max_source_fraction", &SourceConfig::max_source_fraction,
           {.help = "share of its tokens that may be used", .max = 1, .above = 0});
}

TokenizerIds IdsOf(const DataConfig& config) {
  return {.vocab_size = config.vocab_size,
          .eos = config.eos_id,
          .pad = config.pad_id,
          .bos = config.bos_id};
}

Result<std::vector<PathRemap>> RemapsOf(const DataConfig& config) {
  std::vector<PathRemap> remaps;
  for (const std::string& text : config.path_remaps) remaps.push_back(TRY(ParsePathRemap(text)));
  return remaps;
}

FixedLengthOptions FixedLengthOf(const DataConfig& config) {
  return {.sequence_length = config.sequence_length,
          .max_target_sequence_length = config.max_target_sequence_length,
          .ids = IdsOf(config)};
}

// Beside the permutations.
Path PackingDirOf(const DataConfig& config) {
  if (!config.cache_dir.empty()) return config.cache_dir;
  const Path cache = UserCacheDirectory();
  return cache.empty() ? cache : cache / "packings";
}

Status CheckIds(const DataConfig& config) {
  for (const auto& [key, id] :
       {std::pair{"eos_id", config.eos_id}, {"pad_id", config.pad_id}, {"bos_id", config.bos_id}}) {
    if (id >= config.vocab_size)
      return InvalidArgumentError("data.{} = {}: must be below data.vocab_size {}", key, id,
                                  config.vocab_size);
  }
  return {};
}

// Two sources of one label would read the same files of a mix list.
Status CheckLabels(const DataConfig& config) {
  std::set<std::string_view> labels;
  for (const SourceConfig& source : config.sources) {
    if (!labels.insert(source.label).second)
      return InvalidArgumentError(
          "[[data.sources]] has the label `{}` twice; join the two, or name one otherwise",
          source.label);
  }
  return {};
}

bool NamesManifest(std::span<const std::string> paths) {
  return std::ranges::any_of(paths,
                             [](const auto& path) { return path.ends_with(kManifestSuffix); });
}

Status CheckVerifies(const DataConfig& config) {
  if (!config.verify_files || NamesManifest(config.paths)) return {};
  for (const SourceConfig& source : config.sources) {
    if (NamesManifest(source.paths)) return {};
  }
  return InvalidArgumentError(
      "data.verify_files = true: no manifest is named to compare files with; name {} files in "
      "data.paths, or leave it out",
      kManifestSuffix);
}

// Exactly one way to name files.
Status CheckFileKeys(const DataConfig& config) {
  const int given = (config.paths.empty() ? 0 : 1) + (config.index.empty() ? 0 : 1) +
                    (config.mix_list.empty() && config.sources.empty() ? 0 : 1);
  if (given != 1) {
    return InvalidArgumentError(
        "the recipe must name token files in exactly one way: data.paths, data.mix_list, "
        "data.index or [[data.sources]]; it uses {}",
        given);
  }
  if (config.sources.empty() != (config.mixture_tokens == 0)) {
    return InvalidArgumentError(
        "data.mixture_tokens = {} with {} [[data.sources]]: a mixture needs both",
        config.mixture_tokens, config.sources.size());
  }
  const bool fixed_only = !config.index.empty() || !config.sources.empty();
  if (fixed_only && config.dataset != "fixed_length") {
    return InvalidArgumentError("data.dataset = \"{}\": {} give fixed_length instances only",
                                config.dataset, config.index.empty() ? "mixtures" : "indexes");
  }
  TRY(CheckLabels(config));
  return CheckVerifies(config);
}

Result<TokenFileSpec> SpecOf(const DataConfig& config, std::span<const PathRemap> remaps,
                             const std::string& path, const std::string& label) {
  return TokenFileSpec{.path = TRY(LocalPath(path, config.base_dir, remaps)), .label = label};
}

// The files of a manifest, which must be of the recipe's tokens.
Status AddManifest(const DataConfig& config, const Path& path, const std::string& label,
                   std::vector<TokenFileSpec>& specs) {
  TRY(CheckAgainstManifest(path,
                           config.verify_files ? ManifestCheck::kHashes : ManifestCheck::kSamples));
  const Manifest manifest = TRY(ReadManifest(path));
  if (Name(manifest.dtype) != config.dtype || manifest.vocab_size > config.vocab_size ||
      manifest.eos_id != config.eos_id) {
    return InvalidArgumentError(
        "{}: tokens are {}, below {}, documents end with {}; the recipe has data.dtype = \"{}\", "
        "data.vocab_size = {}, data.eos_id = {}",
        path, Name(manifest.dtype), manifest.vocab_size, manifest.eos_id, config.dtype,
        config.vocab_size, config.eos_id);
  }
  for (const ManifestFile& file : manifest.files)
    specs.push_back({.path = path.parent_path() / file.part.name,
                     .label = label,
                     .expected_tokens = file.tokens});
  return Status();
}

Status AddPath(const DataConfig& config, std::span<const PathRemap> remaps, const std::string& path,
               const std::string& label, std::vector<TokenFileSpec>& specs) {
  TokenFileSpec spec = TRY(SpecOf(config, remaps, path, label));
  if (path.ends_with(kManifestSuffix)) return AddManifest(config, spec.path, label, specs);
  specs.push_back(std::move(spec));
  return Status();
}

Result<std::vector<TokenFileSpec>> ListedFiles(const DataConfig& config) {
  const std::vector<PathRemap> remaps = TRY(RemapsOf(config));
  std::vector<TokenFileSpec> specs;
  for (const std::string& path : config.paths) TRY(AddPath(config, remaps, path, "", specs));
  if (!config.label_masks.empty() && config.label_masks.size() != specs.size()) {
    return InvalidArgumentError(
        "data.label_masks has {} files, data.paths has {}: one for each is needed",
        config.label_masks.size(), specs.size());
  }
  for (size_t i = 0; i < config.label_masks.size(); ++i)
    specs[i].label_mask = TRY(LocalPath(config.label_masks[i], config.base_dir, remaps));
  if (!config.mix_list.empty() && config.sources.empty()) {
    const std::vector<MixEntry> entries = TRY(ReadMixList(config.mix_list));
    for (const MixEntry& entry : entries)
      specs.push_back(TRY(SpecOf(config, remaps, entry.path, entry.label)));
  }
  if (config.source_permutation_seed >= 0)
    specs = PermuteFiles(std::move(specs), static_cast<uint64_t>(config.source_permutation_seed));
  return specs;
}

Result<std::shared_ptr<const TokenFiles>> OpenFiles(const DataConfig& config,
                                                    std::vector<TokenFileSpec> specs) {
  const DType dtype = TRY(ParseDType(config.dtype));
  TRY(CheckAllTokens(specs, dtype, IdsOf(config)));
  return TokenFiles::Open(std::move(specs), {.dtype = dtype, .vocab_size = config.vocab_size});
}

Result<std::unique_ptr<InstanceSource>> OpenListed(const DataConfig& config) {
  std::vector<TokenFileSpec> specs = TRY(ListedFiles(config));
  auto files = TRY(OpenFiles(config, std::move(specs)));
  if (config.dataset == "padded")
    return MakePadded(files, config.sequence_length, IdsOf(config), PackingDirOf(config));
  if (config.dataset == "packed") {
    return MakePacked(
        files, {.sequence_length = config.sequence_length,
                .ids = IdsOf(config),
                .long_documents = config.long_documents == "fragment" ? LongDocuments::kFragment
                                                                      : LongDocuments::kTruncate,
                .source_group_size = config.source_group_size,
                .cache_dir = PackingDirOf(config)});
  }
  return MakeFixedLength(files, FixedLengthOf(config));
}

// Files of all sources in order, and how many each has.
Result<std::vector<TokenFileSpec>> SourceFiles(const DataConfig& config,
                                               std::vector<int64_t>& num_files) {
  const std::vector<PathRemap> remaps = TRY(RemapsOf(config));
  std::vector<MixEntry> listed;
  if (!config.mix_list.empty()) listed = TRY(ReadMixList(config.mix_list));
  std::vector<TokenFileSpec> specs;
  for (const SourceConfig& source : config.sources) {
    const size_t before = specs.size();
    for (const std::string& path : source.paths)
      TRY(AddPath(config, remaps, path, source.label, specs));
    for (const MixEntry& entry : listed) {
      if (source.paths.empty() && entry.label == source.label)
        specs.push_back(TRY(SpecOf(config, remaps, entry.path, entry.label)));
    }
    if (specs.size() == before) {
      return InvalidArgumentError(
          "[[data.sources]] `{}` has no files: give it paths, or a data.mix_list with that label",
          source.label);
    }
    num_files.push_back(static_cast<int64_t>(specs.size() - before));
  }
  return specs;
}

Result<PlannedMixture> PlanSources(const DataConfig& config) {
  PlannedMixture mixture;
  std::vector<int64_t> num_files;
  auto specs = TRY(SourceFiles(config, num_files));
  mixture.files = TRY(OpenFiles(config, std::move(specs)));
  int64_t file = 0;
  for (size_t i = 0; i < config.sources.size(); ++i) {
    const SourceConfig& source = config.sources[i];
    mixture.sources.push_back({.label = source.label,
                               .file_tokens = {},
                               .target_ratio = source.target_ratio,
                               .max_repetition_ratio = source.max_repetition_ratio,
                               .max_source_fraction = source.max_source_fraction});
    for (int64_t k = 0; k < num_files[i]; ++k)
      mixture.sources.back().file_tokens.push_back(mixture.files->num_tokens(file++));
  }
  mixture.options = {.requested_tokens = config.mixture_tokens,
                     .global_batch_tokens = config.global_batch * config.sequence_length,
                     .sequence_length = config.sequence_length,
                     .max_target_sequence_length = config.max_target_sequence_length,
                     .exact = config.mixture_exact};
  mixture.plan = TRY(PlanMixture(mixture.sources, mixture.options));
  return mixture;
}

Result<std::unique_ptr<InstanceSource>> OpenIndexed(const DataConfig& config) {
  const Index index = TRY(ReadIndex(config.index));
  std::vector<PathRemap> remaps = TRY(RemapsOf(config));
  auto source =
      TRY(MakeIndexed(index, {.ids = IdsOf(config),
                              .sequence_length = config.sequence_length,
                              .base = config.base_dir.empty() ? Path(config.index).parent_path()
                                                              : Path(config.base_dir),
                              .remaps = std::move(remaps)}));
  TRY(CheckAllTokens(source->files()->specs(), index.dtype, IdsOf(config)));
  return source;
}

StructSchema<DataConfig> MakeSchema() {
  using C = DataConfig;
  StructSchema<C> s("data");
  s.Add("paths", &C::paths, {.help = "token files or manifests (.manifest.json), in order"});
  s.Add("label_masks", &C::label_masks,
        {.help = "one file per path with a byte per token, 0: never a target"});
  s.Add("mix_list", &C::mix_list, {.help = "or: a text with `label,path` lines"});
  s.Add("index", &C::index, {.help = "or: index JSON of MaxText's olmo_grain"});
  s.Add("mixture_tokens", &C::mixture_tokens,
        {.help = "with [[data.sources]]: tokens of the mixture", .min = 0});
  s.Add("mixture_exact", &C::mixture_exact,
        {.help = "refuse a mixture that misses its total; false: as OLMo-core rounds"});
  s.Add("verify_files", &C::verify_files,
        {.help = "read all files of manifests at the start and compare SHA-256"});
  s.Add("base_dir", &C::base_dir,
        {.help = "directory of relative paths; empty: the current one, of an index: its own"});
  s.Add("path_remaps", &C::path_remaps,
        {.help = "\"FROM=TO\": paths that begin with FROM begin with TO"});
  s.Add("dtype", &C::dtype, {.help = "of a token", .choices = {"u8", "u16", "u32", "u64"}});
  s.Add("vocab_size", &C::vocab_size, {.help = "ids are below", .min = 1, .max = 2147483647});
  s.Add("eos_id", &C::eos_id, {.help = "ends a document", .min = 0});
  s.Add("pad_id", &C::pad_id, {.help = "fills what no document does", .min = 0});
  s.Add("bos_id", &C::bos_id, {.help = "begins a document; -1: none", .min = -1});
  s.Add("dataset", &C::dataset,
        {.help = "fixed_length cuts files, packed packs whole documents, padded has one each",
         .choices = {"fixed_length", "packed", "padded"}});
  s.Add("sequence_length", &C::sequence_length, {.help = "tokens of an instance", .min = 2});
  s.Add("max_target_sequence_length", &C::max_target_sequence_length,
        {.help = "keeps the data the same while sequence_length grows to it; 0: none", .min = 0});
  s.Add("long_documents", &C::long_documents,
        {.help = "packed: cut the rest off, or into pieces", .choices = {"truncate", "fragment"}});
  s.Add("source_group_size", &C::source_group_size,
        {.help = "packed: files packed together", .min = 1});
  s.Add("source_permutation_seed", &C::source_permutation_seed,
        {.help = "shuffles the files as OLMo-core does; -1: not", .min = -1});
  s.Add("select", &C::select,
        {.help = "file of u32 instance numbers: the dataset is these, in this order; empty: all"});
  s.Add("document_mask", &C::document_mask,
        {.help = "attention and positions stay within documents"});
  s.Add("global_batch", &C::global_batch, {.help = "instances of an optimizer step", .min = 1});
  s.Add("order", &C::order,
        {.help = "auto: olmo_core, or grain beyond 2^32 instances",
         .choices = {"auto", "olmo_core", "maxtext", "grain", "sequential"}});
  s.Add("seed", &C::seed, {.help = "of the order", .min = 0});
  s.Add("end", &C::end,
        {.help = "after one epoch: stop, wrap into the next, or pad the last batch",
         .choices = {"stop", "wrap", "pad"}});
  s.Add("ngram_filter", &C::ngram_filter,
        {.help = "instances that repeat a few tokens have no loss",
         .choices = {"off", "olmo_core", "maxtext"}});
  s.Add("ngram_min_period", &C::ngram_min_period, {.help = "shortest run of tokens", .min = 1});
  s.Add("ngram_max_period", &C::ngram_max_period, {.help = "longest run of tokens", .min = 1});
  s.Add("ngram_max_count", &C::ngram_max_count,
        {.help = "repetitions that are too many", .min = 3});
  s.Add("loss_divisor", &C::loss_divisor,
        {.help = "olmo_core counts filtered instances as tokens without loss",
         .choices = {"olmo_core", "valid_tokens"}});
  s.Add("accept_fingerprint", &C::accept_fingerprint,
        {.help = "go on from a checkpoint of other data: its fingerprint", .allow_empty = true});
  s.Add("cache_dir", &C::cache_dir,
        {.help = "keeps permutations and packings; empty: below ~/.cache/ulmus"});
  s.Add("order_file", &C::order_file,
        {.help = "a permutation that OLMo-core wrote, used where it fits"});
  s.Add("loader_threads", &C::loader_threads, {.help = "that read batches", .min = 1, .max = 1024});
  s.Add("read_ahead", &C::read_ahead, {.help = "batches in memory", .min = 2, .max = 4096});
  s.AddTables("sources", &C::sources, SourceSchema(), {.help = "a mixture, by shares"});
  return s;
}

}  // namespace

const StructSchema<DataConfig>& DataSchema() {
  static const StructSchema<DataConfig> schema = MakeSchema();
  return schema;
}

namespace {

// Before data.select.
Result<std::unique_ptr<InstanceSource>> OpenAll(const DataConfig& config) {
  if (!config.index.empty()) return OpenIndexed(config);
  if (!config.sources.empty()) {
    PlannedMixture mixture = TRY(PlanSources(config));
    return MakeMixture(std::move(mixture.files), mixture.options, mixture.plan, IdsOf(config));
  }
  return OpenListed(config);
}

}  // namespace

Result<std::unique_ptr<InstanceSource>> OpenSource(const DataConfig& config) {
  TRY(CheckIds(config));
  TRY(CheckFileKeys(config));
  auto all = TRY(OpenAll(config));
  if (config.select.empty()) return all;
  const std::vector<PathRemap> remaps = TRY(RemapsOf(config));
  const Path ids = TRY(LocalPath(config.select, config.base_dir, remaps));
  return MakeSelection(std::move(all), ids);
}

Result<PlannedMixture> OpenMixture(const DataConfig& config) {
  if (config.sources.empty()) {
    return InvalidArgumentError(
        "the recipe has no mixture: give it [[data.sources]] and data.mixture_tokens");
  }
  TRY(CheckIds(config));
  TRY(CheckFileKeys(config));
  return PlanSources(config);
}

Result<OrderConfig> OrderOf(const DataConfig& config, const InstanceSource& source) {
  OrderConfig order;
  order.num_instances = source.num_instances();
  order.kind = config.order == "auto" ? DefaultOrderKind(order.num_instances)
                                      : TRY(ParseOrderKind(config.order));
  order.seed = static_cast<uint64_t>(config.seed);
  order.batch_size = config.global_batch;
  order.end = TRY(ParseEndPolicy(config.end));
  order.instances_per_chunk = source.instances_per_chunk();
  return order;
}

PermutationStoreOptions StoreOf(const DataConfig& config) {
  return {.cache_dir = config.cache_dir, .foreign_file = config.order_file};
}

Result<BatchOptions> BatchOptionsOf(const DataConfig& config) {
  BatchOptions options = {
      .filter_ngrams = config.ngram_filter != "off",
      .filter = {.variant = config.ngram_filter == "maxtext" ? NgramVariant::kMaxText
                                                             : NgramVariant::kOlmoCore,
                 .min_period = config.ngram_min_period,
                 .max_period = config.ngram_max_period,
                 .max_count = config.ngram_max_count},
      .divisor = TRY(ParseLossDivisor(config.loss_divisor)),
      .want_documents = config.document_mask,
      .pad_token = static_cast<int32_t>(config.pad_id)};
  TRY(Validate(options.filter));
  return options;
}

namespace {

Status OpenOrder(const DataConfig& config, const OrderConfig& order, Data& data) {
  auto made = GlobalOrder::Create(order, StoreOf(config));
  if (!made.ok()) {
    return made.error().WithContext(fmt::format("data.order = \"{}\", data.global_batch = {}",
                                                config.order, config.global_batch));
  }
  data.order = std::move(*made);
  LogInfo("order {}: {} instances an epoch in batches of {}, {} left over; data.end = \"{}\"",
          Name(order.kind), data.order->instances_per_epoch(), order.batch_size,
          data.order->dropped_per_epoch(), config.end);
  return Status();
}

// All but the order.
Result<Data> OpenAllButOrder(const DataConfig& config) {
  Data data;
  data.loader.batch = TRY(BatchOptionsOf(config));
  data.loader.num_threads = config.loader_threads;
  data.loader.read_ahead = config.read_ahead;
  data.source = TRY(OpenSource(config));
  // Where documents end matters only to datasets made of whole ones.
  const bool cut = data.source->type() == "fsl";
  data.files =
      TRY(IdentifyFiles(*data.source->files(), cut ? Sidecars::kPassOver : Sidecars::kIdentify));
  return data;
}

}  // namespace

Result<Data> OpenData(const DataConfig& config) {
  Data data = TRY(OpenAllButOrder(config));
  const OrderConfig order = TRY(OrderOf(config, *data.source));
  TRY(OpenOrder(config, order, data));
  return data;
}

Result<LoaderState> StateBefore(int64_t step, const Data& data, int64_t total_tokens,
                                const ConsumedIds& consumed) {
  LoaderState state = TRY(StateBefore(step, *data.order, *data.source, total_tokens, consumed));
  state.files = data.files;
  return state;
}

Result<Data> ResumeData(const DataConfig& config, const LoaderState& state) {
  Data data = TRY(OpenAllButOrder(config));
  return ResumeData(config, state, std::move(data));
}

Result<Data> ResumeData(const DataConfig& config, const LoaderState& state, Data data) {
  const OrderConfig fresh = TRY(OrderOf(config, *data.source));
  const OrderConfig order = TRY(Resume(state, *data.source, fresh, config.accept_fingerprint));
  const bool accepted = config.accept_fingerprint == state.dataset_fingerprint;
  if (!state.files.empty() && !accepted) TRY(CompareIdentities(state.files, data.files));
  TRY(OpenOrder(config, order, data));
  data.loader.first_step = state.step;
  return data;
}

}  // namespace ulmus::data
