#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace ulmus::data {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 53;  // shares are computed in double, as in Python
constexpr double kRatioTolerance = 1e-5;

// An entry before rounding: `tokens` are asked of it.
struct Share {
  MixtureEntry entry;
  int64_t tokens = 0;
};

int64_t UnitOf(const MixtureOptions& options) {
  return std::max(options.sequence_length, options.max_target_sequence_length);
}

int64_t Population(const MixtureSource& source) {
  return std::accumulate(source.file_tokens.begin(), source.file_tokens.end(), int64_t{0});
}

Status ValidateSource(const MixtureSource& source) {
  const auto wrong = [&](std::string_view key, double value, std::string_view range) {
    return InvalidArgumentError("source {}: {} = {}: must be {}", source.label, key, value, range);
  };
  if (!(source.target_ratio > 0 && source.target_ratio <= 1))
    return wrong("target_ratio", source.target_ratio, "above 0 and at most 1");
  if (!(source.max_repetition_ratio >= 1 && source.max_repetition_ratio <= 1e6))
    return wrong("max_repetition_ratio", source.max_repetition_ratio, "at least 1");
  if (!(source.max_source_fraction > 0 && source.max_source_fraction <= 1))
    return wrong("max_source_fraction", source.max_source_fraction, "above 0 and at most 1");
  if (source.file_tokens.empty())
    return InvalidArgumentError("source {}: no file; name at least one", source.label);
  return Status();
}

Status Validate(std::span<const MixtureSource> sources, const MixtureOptions& options) {
  TRY(Validate(
      FixedLengthOptions{.sequence_length = options.sequence_length,
                         .max_target_sequence_length = options.max_target_sequence_length}));
  if (sources.empty()) return InvalidArgumentError("the mixture has no source");
  if (options.requested_tokens <= 0 || options.requested_tokens > kMaxTokens)
    return InvalidArgumentError("requested_tokens = {}: must be 1 .. {}", options.requested_tokens,
                                kMaxTokens);
  const int64_t unit = UnitOf(options);
  if (options.global_batch_tokens <= 0 || options.global_batch_tokens % unit != 0) {
    return InvalidArgumentError(
        "global batch of {} tokens: must be a multiple of {}, the {}", options.global_batch_tokens,
        unit, unit > options.sequence_length ? "max_target_sequence_length" : "sequence_length");
  }
  double sum = 0;
  for (const MixtureSource& source : sources) {
    TRY(ValidateSource(source));
    sum += source.target_ratio;
  }
  if (std::abs(sum - 1) > kRatioTolerance)
    return InvalidArgumentError("target ratios of the {} sources sum to {}; they must sum to 1",
                                sources.size(), sum);
  return Status();
}

// Shares of one source, whose files are first_file and the following.
Result<std::vector<Share>> SharesOf(const MixtureSource& source, int64_t source_index,
                                    int64_t first_file, const MixtureOptions& options) {
  const int64_t population = Population(source);
  const auto needed =
      static_cast<int64_t>(static_cast<double>(options.requested_tokens) * source.target_ratio);
  const auto available = static_cast<int64_t>(
      static_cast<double>(population) * source.max_source_fraction * source.max_repetition_ratio);
  if (available < needed || population == 0) {
    return InvalidArgumentError(
        "source {}: {} of {} tokens are asked ({} of {}), but it offers {} ({} tokens x fraction "
        "{} x "
        "repetitions {}); raise max_repetition_ratio, lower target_ratio, or add files",
        source.label, needed, options.requested_tokens, source.target_ratio,
        options.requested_tokens, available, population, source.max_source_fraction,
        source.max_repetition_ratio);
  }
  const double take = static_cast<double>(needed) / static_cast<double>(population);
  std::vector<Share> shares;
  int64_t pass = 0;
  for (double remaining = take; pass == 0 || remaining > 0; ++pass) {
    const double part = std::min(1.0, remaining);
    remaining -= part;
    for (size_t i = 0; i < source.file_tokens.size(); ++i) {
      const int64_t tokens = source.file_tokens[i];
      shares.push_back(
          {.entry = {.source = source_index,
                     .file = first_file + static_cast<int64_t>(i),
                     .pass = pass,
                     .max_instances = tokens / UnitOf(options)},
           .tokens = static_cast<int64_t>(std::ceil(static_cast<double>(tokens) * part))});
    }
  }
  return shares;
}

bool HasRoom(const Share& share) { return share.entry.num_instances < share.entry.max_instances; }

// One instance each, by largest remainder, to at most `missing` of the shares with room.
void AddByRemainder(std::vector<Share>& shares, const std::vector<double>& remainders,
                    int64_t missing) {
  std::vector<size_t> order;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (HasRoom(shares[i])) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(remainders[a], a) > std::pair(remainders[b], b);
  });
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < missing; ++i)
    ++shares[order[i]].entry.num_instances;
}

int64_t Total(const std::vector<Share>& shares) {
  int64_t total = 0;
  for (const Share& share : shares) total += share.entry.num_instances;
  return total;
}

// OLMo-core's rounding: whole instances, an even part of what is missing, then largest remainders.
std::vector<double> Apportion(std::vector<Share>& shares, int64_t target, int64_t unit) {
  std::vector<double> remainders;
  for (Share& share : shares) {
    share.entry.num_instances = std::min(share.tokens / unit, share.entry.max_instances);
    remainders.push_back(HasRoom(share)
                             ? static_cast<double>(share.tokens % unit) / static_cast<double>(unit)
                             : 0.0);
  }
  const auto with_room = std::count_if(shares.begin(), shares.end(), HasRoom);
  const int64_t missing = target - Total(shares);
  if (missing <= 0 || with_room == 0) return remainders;
  const int64_t even = missing / with_room;
  for (Share& share : shares) {
    share.entry.num_instances =
        std::min(share.entry.num_instances + even,
                 std::max(share.entry.max_instances, share.entry.num_instances));
  }
  AddByRemainder(shares, remainders, target - Total(shares));
  return remainders;
}

// Goes on until the total is met.
Status MeetTotal(std::vector<Share>& shares, const std::vector<double>& remainders,
                 int64_t target) {
  while (Total(shares) < target) {
    const auto with_room = std::count_if(shares.begin(), shares.end(), HasRoom);
    if (with_room == 0) {
      return InvalidArgumentError(
          "the mixture gives {} instances, but {} are needed for whole batches, and no file has a "
          "full "
          "instance left; lower requested_tokens, allow repetitions, or add files",
          Total(shares), target);
    }
    const int64_t even = (target - Total(shares)) / with_room;
    for (Share& share : shares)
      share.entry.num_instances =
          std::min(share.entry.num_instances + even, share.entry.max_instances);
    AddByRemainder(shares, remainders, target - Total(shares));
  }
  // Rounding up the tokens of many files can give too many: the smallest remainders give way.
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(remainders[a], b) < std::pair(remainders[b], a);
  });
  for (int64_t extra = Total(shares) - target; extra > 0;) {
    for (size_t i = 0; i < order.size() && extra > 0; ++i) {
      if (shares[order[i]].entry.num_instances == 0) continue;
      --shares[order[i]].entry.num_instances;
      --extra;
    }
  }
  return Status();
}

}  // namespace

Result<MixturePlan> PlanMixture(std::span<const MixtureSource> sources,
                                const MixtureOptions& options) {
  TRY(Validate(sources, options));
  std::vector<Share> shares;
  int64_t first_file = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto own = TRY(SharesOf(sources[i], static_cast<int64_t>(i), first_file, options));
    shares.insert(shares.end(), own.begin(), own.end());
    first_file += static_cast<int64_t>(sources[i].file_tokens.size());
  }
  const int64_t unit = UnitOf(options);
  const int64_t batch = options.global_batch_tokens;
  const int64_t target = (options.requested_tokens + batch - 1) / batch * (batch / unit);
  const std::vector<double> remainders = Apportion(shares, target, unit);
  if (options.exact) TRY(MeetTotal(shares, remainders, target));

  const int64_t per_unit = unit / options.sequence_length;
  MixturePlan plan{.entries = {}, .target_instances = target * per_unit};
  for (const Share& share : shares) {
    plan.entries.push_back(share.entry);
    plan.entries.back().num_instances *= per_unit;
    plan.entries.back().max_instances *= per_unit;
    plan.num_instances += plan.entries.back().num_instances;
  }
  return plan;
}

std::string ExplainMixture(std::span<const MixtureSource> sources, const MixtureOptions& options,
                           const MixturePlan& plan) {
  std::string table =
      fmt::format("{:<24} {:>6} {:>18} {:>9} {:>9} {:>14} {:>7} {:>18}\n", "source", "files",
                  "tokens", "asked", "given", "instances", "passes", "unused tokens");
  for (size_t i = 0; i < sources.size(); ++i) {
    int64_t instances = 0;
    int64_t passes = 0;
    int64_t first_pass = 0;
    for (const MixtureEntry& entry : plan.entries) {
      if (entry.source != static_cast<int64_t>(i)) continue;
      instances += entry.num_instances;
      if (entry.pass == 0) first_pass += entry.num_instances;
      if (entry.num_instances > 0) passes = std::max(passes, entry.pass + 1);
    }
    const int64_t population = Population(sources[i]);
    table += fmt::format(
        "{:<24} {:>6} {:>18} {:>8.4f}% {:>8.4f}% {:>14} {:>7} {:>18}\n", sources[i].label,
        sources[i].file_tokens.size(), population, 100 * sources[i].target_ratio,
        plan.num_instances == 0
            ? 0.0
            : 100 * static_cast<double>(instances) / static_cast<double>(plan.num_instances),
        instances, passes, population - first_pass * options.sequence_length);
  }
  table += fmt::format(
      "total: {} instances of {} tokens = {} tokens ({} requested, rounded up to batches of {})\n",
      plan.num_instances, options.sequence_length, plan.num_instances * options.sequence_length,
      options.requested_tokens, options.global_batch_tokens);
  return table;
}

Result<std::unique_ptr<InstanceSource>> MakeMixture(std::shared_ptr<const TokenFiles> files,
                                                    const MixtureOptions& options,
                                                    const MixturePlan& plan,
                                                    const TokenizerIds& ids) {
  std::vector<FixedLengthEntry> entries;
  std::vector<FileSize> sizes;
  const int64_t width = SizeBytes(files->options().dtype);
  for (const MixtureEntry& entry : plan.entries) {
    CHECK(entry.file < files->size(), "file {} of {}", entry.file, files->size());
    entries.push_back({entry.file, entry.num_instances, entry.pass});
    sizes.push_back(
        {files->spec(entry.file).path, entry.num_instances * options.sequence_length * width});
  }
  const std::pair<std::string, std::string> fields[] = {
      {"vocab_size", std::to_string(ids.vocab_size)},
      {"pad_token_id", std::to_string(ids.pad)},
      {"eos_token_id", std::to_string(ids.eos)},
      {"dtype", PythonText(files->options().dtype)},
      {"max_target_sequence_length", PythonOrNone(options.max_target_sequence_length, 0)},
      {"bos_token_id", PythonOrNone(ids.bos, -1)},
  };
  return MakeFixedLength(std::move(files),
                         {.sequence_length = options.sequence_length,
                          .max_target_sequence_length = options.max_target_sequence_length,
                          .ids = ids},
                         std::move(entries),
                         {OlmoCoreFingerprint("NumpyFSLDatasetMixture", fields, sizes), "v2.0"});
}

}  // namespace ulmus::data
