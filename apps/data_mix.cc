// `ulmus data mix`: what a mixture of sources gives, before any training.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "apps/data_commands.h"
#include "apps/data_input.h"
#include "apps/data_recipe.h"
#include "data/mixture.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  DataInput input;
  data::MixtureOptions mixture;
  std::vector<std::string> ratios;
  std::vector<std::string> repeats;
  std::vector<std::string> set;
  bool olmo_core = false;
  bool explain = false;
  bool json = false;
  std::vector<std::string> given;  // flags, "--ratio"
};

bool OfRecipe(const Options& options) { return std::ranges::any_of(options.input.paths, IsRecipe); }

// A recipe says all; files need what a recipe would say.
Status CheckFlags(const Options& options) {
  const auto given = [&](std::string_view flag) {
    return std::ranges::find(options.given, flag) != options.given.end();
  };
  if (!OfRecipe(options)) {
    for (const char* flag : {"--ratio", "--tokens", "--sequence-length", "--global-batch-tokens"}) {
      if (!given(flag))
        return InvalidArgumentError("{}: needed, for the input is no recipe that says it", flag);
    }
    if (!given("--set")) return Status();
    return InvalidArgumentError("--set: the input is no recipe; use the flags");
  }
  if (options.input.paths.size() > 1)
    return InvalidArgumentError("a recipe stands alone; name no other input beside it");
  for (const std::string& flag : options.given) {
    if (flag != "--set" && flag != "--explain" && flag != "--json")
      return InvalidArgumentError("{}: the recipe says it; change it there, or with --set", flag);
  }
  return Status();
}

std::vector<std::string> LabelsOf(const std::vector<data::MixtureSource>& sources) {
  std::vector<std::string> labels;
  for (const data::MixtureSource& source : sources) labels.push_back(source.label);
  return labels;
}

// LABEL=NUMBER onto the source of that label, once.
Status Assign(std::vector<data::MixtureSource>& sources, std::string_view flag,
              const std::string& text, double data::MixtureSource::* field,
              std::set<std::string_view>& assigned) {
  const size_t equals = text.rfind('=');
  double value = 0;
  const char* end = text.data() + text.size();
  const char* number = equals == std::string::npos ? end : text.data() + equals + 1;
  const std::from_chars_result read = std::from_chars(number, end, value);
  if (read.ptr != end || read.ec != std::errc())
    return InvalidArgumentError("{} {}: expected LABEL=NUMBER", flag, text);
  const std::string_view label = std::string_view(text).substr(0, equals);
  for (data::MixtureSource& source : sources) {
    if (source.label != label) continue;
    if (!assigned.insert(source.label).second)
      return InvalidArgumentError("{} {}: given twice for {}; leave one out", flag, text, label);
    source.*field = value;
    return Status();
  }
  return InvalidArgumentError("{} {}: no file of the input has the label {}; it has {}", flag, text,
                              label, fmt::join(LabelsOf(sources), ", "));
}

Status AssignAll(std::vector<data::MixtureSource>& sources, std::string_view flag,
                 const std::vector<std::string>& texts, double data::MixtureSource::* field) {
  std::set<std::string_view> assigned;
  for (const std::string& text : texts) TRY(Assign(sources, flag, text, field, assigned));
  return Status();
}

// Files by label, in the order of their first files. OLMo-core reads a source's files together, so
// that the plan numbers them source by source.
std::vector<data::MixtureSource> SourcesOf(const data::TokenFiles& files) {
  std::vector<data::MixtureSource> sources;
  for (int64_t i = 0; i < files.size(); ++i) {
    const std::string& label = files.spec(i).label;
    auto it = sources.begin();
    while (it != sources.end() && it->label != label) ++it;
    if (it == sources.end()) it = sources.insert(it, data::MixtureSource{.label = label});
    it->file_tokens.push_back(files.num_tokens(i));
  }
  return sources;
}

Json ToJson(const data::PlannedMixture& mixture) {
  Json rows = Json::array();
  for (size_t i = 0; i < mixture.sources.size(); ++i) {
    const data::MixtureSource& source = mixture.sources[i];
    const data::MixtureSourcePlan& plan = mixture.plan.sources[i];
    rows.push_back({{"source", source.label},
                    {"files", source.file_tokens.size()},
                    {"tokens", plan.tokens},
                    {"max_repetition_ratio", source.max_repetition_ratio},
                    {"max_source_fraction", source.max_source_fraction},
                    {"available_tokens", plan.available_tokens},
                    {"target_ratio", source.target_ratio},
                    {"asked_tokens", plan.asked_tokens},
                    {"given_ratio", data::GivenRatio(plan, mixture.plan)},
                    {"instances", plan.num_instances},
                    {"passes", plan.passes},
                    {"unused_tokens", plan.unused_tokens},
                    {"rounding",
                     {{"whole", plan.whole},
                      {"even", plan.even},
                      {"remainder", plan.remainder},
                      {"exact", plan.exact}}}});
  }
  return {{"instances", mixture.plan.num_instances},
          {"target_instances", mixture.plan.target_instances},
          {"tokens", mixture.plan.num_instances * mixture.options.sequence_length},
          {"requested_tokens", mixture.options.requested_tokens},
          {"sequence_length", mixture.options.sequence_length},
          {"global_batch_tokens", mixture.options.global_batch_tokens},
          {"sources", std::move(rows)}};
}

Result<data::PlannedMixture> PlanFiles(const Options& options) {
  const OpenedInput opened = TRY(OpenInput(options.input));
  data::PlannedMixture mixture{.files = opened.files,
                               .sources = SourcesOf(*opened.files),
                               .options = options.mixture,
                               .plan = {}};
  TRY(AssignAll(mixture.sources, "--ratio", options.ratios, &data::MixtureSource::target_ratio));
  TRY(AssignAll(mixture.sources, "--repeat", options.repeats,
                &data::MixtureSource::max_repetition_ratio));
  mixture.options.exact = !options.olmo_core;
  mixture.plan = TRY(data::PlanMixture(mixture.sources, mixture.options));
  return mixture;
}

Result<data::PlannedMixture> PlanAny(const Options& options) {
  TRY(CheckFlags(options));
  if (!OfRecipe(options)) return PlanFiles(options);
  return data::OpenMixture(TRY(ReadDataConfig(options.input.paths[0], options.set)));
}

int RunMix(const Options& options) {
  const Result<data::PlannedMixture> mixture = PlanAny(options);
  if (!mixture.ok()) return Fail(mixture.status());
  const auto& [files, sources, sizes, plan] = *mixture;
  if (options.json) {
    fmt::print("{}\n", ToJson(*mixture).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", data::ExplainMixture(sources, sizes, plan));
    if (options.explain) fmt::print("\n{}", data::ExplainRounding(sources, sizes, plan));
  }
  return kExitOk;
}

}  // namespace

void AddDataMix(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("mix", "Explain what a mixture of sources would read");
  const auto options = std::make_shared<Options>();
  AddInputOptions(*command, options->input);
  command->get_option("input")->description(
      "A recipe or preset with [[data.sources]], or token files, folders, lists as elsewhere");
  command->add_option("--set", options->set, "With a recipe: key=value over the recipe's");
  command->add_option("--ratio", options->ratios,
                      "LABEL=SHARE of each source; they sum to 1. This and all below: without a "
                      "recipe");
  command->add_option("--repeat", options->repeats, "LABEL=TIMES its tokens may be used (1)");
  command->add_option("--tokens", options->mixture.requested_tokens, "Tokens of the whole mixture");
  command->add_option("--sequence-length", options->mixture.sequence_length,
                      "Tokens of an instance");
  command->add_option("--global-batch-tokens", options->mixture.global_batch_tokens,
                      "The total is rounded up to whole batches");
  command->add_flag("--olmo-core", options->olmo_core,
                    "OLMo-core's rounding as it is, which may end beside the total");
  command->add_flag("--explain", options->explain,
                    "Also print how the instances were apportioned, step by step");
  command->add_flag("--json", options->json, "Print one JSON object with all of it");
  command->footer(
      "Example: ulmus data mix run.toml --explain\n"
      "         ulmus data mix mix.txt --ratio cc=0.7 --ratio wiki=0.3 --tokens 1000000000 "
      "--sequence-length 8192 --global-batch-tokens 4194304");
  command->callback([command, options, &run] {
    options->given = GivenFlags(*command);
    run = [options] { return RunMix(*options); };
  });
}

}  // namespace ulmus::apps
