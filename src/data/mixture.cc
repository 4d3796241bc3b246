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
  // entry.num_instances after each step of the rounding.
  int64_t whole = 0;
  int64_t with_even = 0;
  int64_t with_remainder = 0;
};

int64_t UnitOf(const MixtureOptions& options) {
  return std::max(options.sequence_length, options.max_target_sequence_length);
}

int64_t Population(const MixtureSource& source) {
  return std::accumulate(source.file_tokens.begin(), source.file_tokens.end(), int64_t{0});
}

int64_t Asked(const MixtureSource& source, const MixtureOptions& options) {
  return static_cast<int64_t>(static_cast<double>(options.requested_tokens) * source.target_ratio);
}

int64_t Available(const MixtureSource& source) {
  return static_cast<int64_t>(static_cast<double>(Population(source)) * source.max_source_fraction *
                              source.max_repetition_ratio);
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
  const int64_t needed = Asked(source, options);
  const int64_t available = Available(source);
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
  const int64_t even = missing <= 0 || with_room == 0 ? 0 : missing / with_room;
  for (Share& share : shares) {
    share.whole = share.entry.num_instances;
    share.entry.num_instances =
        std::min(share.entry.num_instances + even,
                 std::max(share.entry.max_instances, share.entry.num_instances));
    share.with_even = share.entry.num_instances;
  }
  AddByRemainder(shares, remainders, target - Total(shares));
  for (Share& share : shares) share.with_remainder = share.entry.num_instances;
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

MixtureSourcePlan TokensOf(const MixtureSource& source, const MixtureOptions& options) {
  const int64_t tokens = Population(source);
  return {.tokens = tokens,
          .available_tokens = Available(source),
          .asked_tokens = Asked(source, options),
          .unused_tokens = tokens};
}

// Adds what a file gives in a pass to its source.
void Count(const Share& share, int64_t per_unit, int64_t sequence_length,
           MixtureSourcePlan& source) {
  const int64_t instances = share.entry.num_instances;
  source.whole += per_unit * share.whole;
  source.even += per_unit * (share.with_even - share.whole);
  source.remainder += per_unit * (share.with_remainder - share.with_even);
  source.exact += per_unit * (instances - share.with_remainder);
  source.num_instances += per_unit * instances;
  if (share.entry.pass == 0) source.unused_tokens -= per_unit * instances * sequence_length;
  if (instances > 0) source.passes = std::max(source.passes, share.entry.pass + 1);
}

}  // namespace

double GivenRatio(const MixtureSourcePlan& source, const MixturePlan& plan) {
  return plan.num_instances == 0
             ? 0
             : static_cast<double>(source.num_instances) / static_cast<double>(plan.num_instances);
}

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
  MixturePlan plan{.entries = {}, .sources = {}, .target_instances = target * per_unit};
  for (const MixtureSource& source : sources) plan.sources.push_back(TokensOf(source, options));
  for (const Share& share : shares) {
    plan.entries.push_back(share.entry);
    plan.entries.back().num_instances *= per_unit;
    plan.entries.back().max_instances *= per_unit;
    plan.num_instances += plan.entries.back().num_instances;
    Count(share, per_unit, options.sequence_length,
          plan.sources[static_cast<size_t>(share.entry.source)]);
  }
  return plan;
}

std::string ExplainMixture(std::span<const MixtureSource> sources, const MixtureOptions& options,
                           const MixturePlan& plan) {
  std::string table =
      fmt::format("{:<16} {:>6} {:>17} {:>17} {:>17} {:>9} {:>9} {:>12} {:>6} {:>17}\n", "source",
                  "files", "tokens", "available", "asked tokens", "asked", "given", "instances",
                  "passes", "unused tokens");
  for (size_t i = 0; i < sources.size(); ++i) {
    const MixtureSourcePlan& source = plan.sources[i];
    table += fmt::format(
        "{:<16} {:>6} {:>17} {:>17} {:>17} {:>8.4f}% {:>8.4f}% {:>12} {:>6} {:>17}\n",
        sources[i].label, sources[i].file_tokens.size(), source.tokens, source.available_tokens,
        source.asked_tokens, 100 * sources[i].target_ratio, 100 * GivenRatio(source, plan),
        source.num_instances, source.passes, source.unused_tokens);
  }
  table += fmt::format(
      "total: {} instances of {} tokens = {} tokens ({} requested, rounded up to batches of {})\n",
      plan.num_instances, options.sequence_length, plan.num_instances * options.sequence_length,
      options.requested_tokens, options.global_batch_tokens);
  if (plan.num_instances != plan.target_instances)
    table += fmt::format("{} instances would be whole batches: OLMo-core's rounding misses them\n",
                         plan.target_instances);
  return table;
}

std::string ExplainRounding(std::span<const MixtureSource> sources, const MixtureOptions& options,
                            const MixturePlan& plan) {
  std::string table =
      fmt::format("{:<16} {:>17} {:>12} {:>10} {:>11} {:>10} {:>12}\n", "source", "asked exactly",
                  "whole", "+ even", "+ remainder", "+ exact", "= instances");
  for (size_t i = 0; i < sources.size(); ++i) {
    const MixtureSourcePlan& source = plan.sources[i];
    table += fmt::format(
        "{:<16} {:>17.4f} {:>12} {:>10} {:>11} {:>10} {:>12}\n", sources[i].label,
        static_cast<double>(source.asked_tokens) / static_cast<double>(options.sequence_length),
        source.whole, source.even, source.remainder, source.exact, source.num_instances);
  }
  return table +
         "whole: full instances of the tokens asked of each file. even: files with instances left "
         "share what the\ntotal lacks. remainder: one each to the files with the largest "
         "remainders. exact: what the total lacked\nor had too much after that.\n";
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
