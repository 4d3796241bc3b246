// `ulmus data stats`: tokens, documents, sources and repeats of token files, in one pass.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/data_commands.h"
#include "apps/data_input.h"
#include "base/log.h"
#include "data/ngram_filter.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  DataInput input;
  std::optional<int64_t> sequence_length;
  bool json = false;
};

struct SourceCounts {
  std::string label;
  int64_t files = 0;
  int64_t tokens = 0;
  int64_t documents = 0;
};

struct Counts {
  std::vector<SourceCounts> sources;  // in the order of their first files
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t document_tokens = 0;
  int64_t eos = 0;
  int64_t shortest = std::numeric_limits<int64_t>::max();
  int64_t longest = 0;
  std::array<int64_t, 64> by_length = {};  // [k]: documents of 2^(k-1)+1 .. 2^k tokens
  int64_t sequence_length = 0;
  int64_t instances = 0;
  int64_t repeating = 0;  // instances that the n-gram filter would mask
  double seconds = 0;
};

SourceCounts& SourceOf(Counts& counts, const std::string& label) {
  for (SourceCounts& source : counts.sources) {
    if (source.label == label) return source;
  }
  counts.sources.push_back({.label = label});
  return counts.sources.back();
}

void AddDocument(Counts& counts, int64_t length) {
  ++counts.documents;
  counts.document_tokens += length;
  counts.shortest = std::min(counts.shortest, length);
  counts.longest = std::max(counts.longest, length);
  ++counts.by_length[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(length - 1)))];
}

Status CountFile(const data::TokenFiles& files, int64_t file, const data::DocumentRule& rule,
                 std::vector<int32_t>& tokens, Counts& counts) {
  const int64_t num_tokens = files.num_tokens(file);
  const int64_t step = counts.sequence_length;
  int64_t document_start = 0;
  for (int64_t first = 0; first < num_tokens; first += step) {
    const int64_t count = std::min(step, num_tokens - first);
    const int64_t ahead = std::min(step + 1, num_tokens - first);  // a BOS may follow
    const auto read = std::span(tokens).first(static_cast<size_t>(ahead));
    TRY(files.Read(file, first, read));
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      if (read[at] != rule.eos) continue;
      ++counts.eos;
      const int64_t end = first + i + 1;
      if (end < num_tokens && !rule.IsBorder(read[at], read[at + 1])) continue;
      AddDocument(counts, end - document_start);
      document_start = end;
    }
    if (count < step) break;
    ++counts.instances;
    if (data::HasRepeatedNgram({}, read.first(static_cast<size_t>(step)))) ++counts.repeating;
  }
  counts.tokens += num_tokens;
  return Status();
}

Result<Counts> CountAll(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const OpenedInput opened = TRY(OpenInput(options.input));
  const data::TokenFiles& files = *opened.files;
  const data::DocumentRule rule = opened.resolved.ids.documents();
  Counts counts;
  counts.sequence_length = TRY(SequenceLengthOf(options.sequence_length, opened.resolved, 8192));
  std::vector<int32_t> tokens(static_cast<size_t>(counts.sequence_length) + 1);
  Progress progress("count", files.total_tokens(), {.unit = "tokens"});
  for (int64_t i = 0; i < files.size(); ++i) {
    const int64_t documents = counts.documents;
    TRY(CountFile(files, i, rule, tokens, counts));
    SourceCounts& source = SourceOf(counts, files.spec(i).label);
    ++source.files;
    source.tokens += files.num_tokens(i);
    source.documents += counts.documents - documents;
    progress.Update(counts.tokens);
  }
  progress.Finish();
  counts.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return counts;
}

double Ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

Json ToJson(const Counts& counts) {
  Json sources = Json::array();
  for (const SourceCounts& source : counts.sources) {
    sources.push_back({{"source", source.label},
                       {"files", source.files},
                       {"tokens", source.tokens},
                       {"documents", source.documents}});
  }
  Json lengths = Json::array();
  for (size_t k = 0; k < counts.by_length.size(); ++k) {
    if (counts.by_length[k] > 0)
      lengths.push_back(
          {{"up_to", int64_t{1} << std::min<size_t>(k, 62)}, {"documents", counts.by_length[k]}});
  }
  return {{"tokens", counts.tokens},
          {"documents", counts.documents},
          {"seconds", counts.seconds},
          {"eos_rate", Ratio(counts.eos, counts.tokens)},
          {"tokens_outside_documents", counts.tokens - counts.document_tokens},
          {"document_length",
           {{"min", counts.documents == 0 ? 0 : counts.shortest},
            {"mean", Ratio(counts.document_tokens, counts.documents)},
            {"max", counts.longest},
            {"histogram", lengths}}},
          {"sources", sources},
          {"repeats",
           {{"sequence_length", counts.sequence_length},
            {"instances", counts.instances},
            {"repeating", counts.repeating},
            {"share", Ratio(counts.repeating, counts.instances)}}}};
}

void Print(const Counts& counts) {
  fmt::print("{} tokens, {} documents, EOS rate {:.6f}\n", counts.tokens, counts.documents,
             Ratio(counts.eos, counts.tokens));
  fmt::print("{} tokens after the last EOS of their file belong to no document\n",
             counts.tokens - counts.document_tokens);
  if (counts.documents > 0) {
    fmt::print("document length: min {}, mean {:.1f}, max {}\n", counts.shortest,
               Ratio(counts.document_tokens, counts.documents), counts.longest);
    for (size_t k = 0; k < counts.by_length.size(); ++k) {
      if (counts.by_length[k] > 0)
        fmt::print("  up to {:>10}  {:>12}\n", int64_t{1} << std::min<size_t>(k, 62),
                   counts.by_length[k]);
    }
  }
  fmt::print("{:<24} {:>7} {:>18} {:>14}\n", "source", "files", "tokens", "documents");
  for (const SourceCounts& source : counts.sources)
    fmt::print("{:<24} {:>7} {:>18} {:>14}\n", source.label.empty() ? "-" : source.label,
               source.files, source.tokens, source.documents);
  fmt::print(
      "{} of {} instances of {} tokens repeat an n-gram so often that the filter masks them\n",
      counts.repeating, counts.instances, counts.sequence_length);
  fmt::print("{:.1f} s\n", counts.seconds);
}

int RunStats(const Options& options) {
  const Result<Counts> counts = CountAll(options);
  if (!counts.ok()) return Fail(counts.status());
  if (options.json) {
    fmt::print("{}\n", ToJson(*counts).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    Print(*counts);
  }
  return kExitOk;
}

}  // namespace

void AddDataStats(CLI::App& app, Run& run) {
  CLI::App* command =
      app.add_subcommand("stats", "Count tokens, documents, sources and repeated n-grams");
  const auto options = std::make_shared<Options>();
  AddInputOptions(*command, options->input);
  command
      ->add_option("--sequence-length", options->sequence_length,
                   "Instances that are looked at for repeats; an index says it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->default_str("8192");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer("Example: ulmus data stats corpus.manifest.json --json");
  command->callback([options, &run] { run = [options] { return RunStats(*options); }; });
}

}  // namespace ulmus::apps
