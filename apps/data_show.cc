// `ulmus data show`: instances of a dataset, decoded, with document borders and masks.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/data_commands.h"
#include "apps/data_input.h"
#include "data/fixed_length.h"
#include "data/packed.h"
#include "tokenizer/tokenizer.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  DataInput input;
  std::string dataset = "fixed";
  std::optional<int64_t> sequence_length;
  int64_t group_size = 1;
  bool fragment = false;
  int64_t instance = 0;
  int64_t count = 1;
  int64_t shown_tokens = 24;
  std::string tokenizer;
  bool json = false;
};

Result<std::unique_ptr<data::InstanceSource>> MakeSource(const Options& options) {
  OpenedInput opened = TRY(OpenInput(options.input));
  const data::TokenizerIds& ids = opened.resolved.ids;
  const int64_t length = TRY(SequenceLengthOf(options.sequence_length, opened.resolved, 8192));
  if (opened.resolved.index && options.dataset != "fixed") {
    return InvalidArgumentError("--dataset {}: an index gives instances of a fixed length only",
                                options.dataset);
  }
  if (options.dataset == "padded") return data::MakePadded(std::move(opened.files), length, ids);
  if (options.dataset == "packed") {
    return data::MakePacked(std::move(opened.files),
                            {.sequence_length = length,
                             .ids = ids,
                             .long_documents = options.fragment ? data::LongDocuments::kFragment
                                                                : data::LongDocuments::kTruncate,
                             .source_group_size = options.group_size});
  }
  return data::MakeFixedLength(std::move(opened.files), {.sequence_length = length, .ids = ids});
}

// A stretch of one document, or of padding.
struct Segment {
  int32_t id = 0;
  size_t begin = 0;
  size_t end = 0;
};

struct Instance {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> loss_mask;
  std::vector<int32_t> segment_ids;
  data::InstanceOrigin origin;

  std::vector<Segment> segments() const {
    std::vector<Segment> segments;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (segments.empty() || segments.back().id != segment_ids[i])
        segments.push_back({segment_ids[i], i, i});
      segments.back().end = i + 1;
    }
    return segments;
  }
  int64_t Targets(const Segment& segment) const {
    int64_t targets = 0;  // nothing predicts the first token
    for (size_t i = std::max<size_t>(segment.begin, 1); i < segment.end; ++i)
      targets += loss_mask[i];
    return targets;
  }
};

Result<Instance> ReadInstance(const data::InstanceSource& source, int64_t number) {
  const auto length = static_cast<size_t>(source.sequence_length());
  data::InstanceOrigin origin = TRY(source.Describe(number));
  Instance instance{.tokens = std::vector<int32_t>(length),
                    .loss_mask = std::vector<uint8_t>(length),
                    .segment_ids = std::vector<int32_t>(length),
                    .origin = std::move(origin)};
  TRY(source.Read(number, {.tokens = instance.tokens,
                           .loss_mask = instance.loss_mask,
                           .segment_ids = instance.segment_ids}));
  return instance;
}

// The start of a segment as text, or as ids without a tokenizer.
Result<std::string> Shown(const Instance& instance, const Segment& segment, int64_t limit,
                          const std::optional<tokenizer::Tokenizer>& tokenizer) {
  const size_t count = std::min(segment.end - segment.begin, static_cast<size_t>(limit));
  const auto tokens = std::span(instance.tokens).subspan(segment.begin, count);
  const bool cut = segment.begin + count < segment.end;
  if (tokenizer) return TRY(tokenizer->Decode(tokens)) + (cut ? "..." : "");
  return fmt::format("{}{}", fmt::join(tokens, " "), cut ? " ..." : "");
}

Json ToJson(const Instance& instance, int64_t number, const Options& options,
            const std::vector<std::string>& texts) {
  Json ranges = Json::array();
  for (const data::TokenRange& range : instance.origin.ranges)
    ranges.push_back({{"file", range.file.string()},
                      {"first_token", range.first_token},
                      {"tokens", range.num_tokens}});
  Json segments = Json::array();
  size_t i = 0;
  for (const Segment& segment : instance.segments()) {
    segments.push_back({{"segment", segment.id},
                        {"begin", segment.begin},
                        {"end", segment.end},
                        {"targets", instance.Targets(segment)},
                        {options.tokenizer.empty() ? "ids" : "text", texts[i++]}});
  }
  return {{"instance", number},
          {"source", instance.origin.source},
          {"ranges", std::move(ranges)},
          {"segments", std::move(segments)}};
}

// Line ends and control bytes would tear the table.
std::string Printable(const std::string& text) {
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return quoted;
}

void Print(const Instance& instance, int64_t number, const std::vector<std::string>& texts) {
  fmt::print("instance {}  source {}\n", number,
             instance.origin.source.empty() ? "-" : instance.origin.source);
  for (const data::TokenRange& range : instance.origin.ranges)
    fmt::print("  {} [{}, {})\n", range.file, range.first_token,
               range.first_token + range.num_tokens);
  size_t i = 0;
  for (const Segment& segment : instance.segments()) {
    const std::string name = segment.id == data::kPaddingSegment
                                 ? std::string("padding")
                                 : fmt::format("document {}", segment.id);
    fmt::print("  {:<14} [{:>6}, {:>6})  {:>6} targets  {}\n", name, segment.begin, segment.end,
               instance.Targets(segment), Printable(texts[i++]));
  }
}

Status Show(const Options& options) {
  std::optional<tokenizer::Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = TRY(tokenizer::Tokenizer::Load(options.tokenizer));
  const auto source = TRY(MakeSource(options));
  if (options.instance < 0 || options.instance > source->num_instances() - options.count)
    return InvalidArgumentError("{} instances from {} on are asked; the dataset has 0 .. {}",
                                options.count, options.instance, source->num_instances() - 1);
  const int64_t end = options.instance + options.count;
  Json instances = Json::array();
  for (int64_t number = options.instance; number < end; ++number) {
    const Instance instance = TRY(ReadInstance(*source, number));
    std::vector<std::string> texts;
    for (const Segment& segment : instance.segments())
      texts.push_back(TRY(Shown(instance, segment, options.shown_tokens, tokenizer)));
    if (options.json) {
      instances.push_back(ToJson(instance, number, options, texts));
    } else {
      Print(instance, number, texts);
    }
  }
  if (options.json) {
    const Json report = {{"num_instances", source->num_instances()},
                         {"sequence_length", source->sequence_length()},
                         {"type", source->type()},
                         {"fingerprint", source->fingerprint()},
                         {"instances", std::move(instances)}};
    fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
  }
  return Status();
}

}  // namespace

void AddDataShow(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("show", "Print instances with document borders and masks");
  const auto options = std::make_shared<Options>();
  AddInputOptions(*command, options->input);
  command->add_option("--dataset", options->dataset, "How files become instances")
      ->check(CLI::IsMember({"fixed", "padded", "packed"}))
      ->capture_default_str();
  command
      ->add_option("--sequence-length", options->sequence_length,
                   "Tokens of an instance; an index says it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->default_str("8192");
  command->add_option("--group-size", options->group_size, "packed: files packed together")
      ->check(AtLeast(1))
      ->capture_default_str();
  command->add_flag("--fragment", options->fragment, "packed: cut long documents, drop nothing");
  command->add_option("--instance", options->instance, "First instance to show")
      ->capture_default_str();
  command->add_option("--count", options->count, "Instances to show")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--tokens", options->shown_tokens, "Tokens shown of each document")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--tokenizer", options->tokenizer,
                      "tokenizer.json to decode with; ids are shown without");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example: ulmus data show mix.txt --dataset packed --sequence-length 65536 --instance 3 "
      "--tokenizer tokenizer.json");
  command->callback([options, &run] {
    run = [options]() -> int {
      const Status status = Show(*options);
      return status.ok() ? kExitOk : Fail(status);
    };
  });
}

}  // namespace ulmus::apps
