// `ulmus data mix`: what a mixture of sources gives, before any training.
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/data_commands.h"
#include "apps/data_input.h"
#include "data/mixture.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  DataInput input;
  data::MixtureOptions mixture;
  std::vector<std::string> ratios;
  std::vector<std::string> repeats;
  bool olmo_core = false;
  bool json = false;
};

// LABEL=NUMBER onto the source of that label.
Status Assign(std::vector<data::MixtureSource>& sources, const std::string& text,
              double data::MixtureSource::* field) {
  const size_t equals = text.rfind('=');
  double value = 0;
  const char* end = text.data() + text.size();
  if (equals == std::string::npos ||
      std::from_chars(text.data() + equals + 1, end, value).ptr != end || equals + 1 == text.size())
    return InvalidArgumentError("\"{}\": expected LABEL=NUMBER", text);
  const std::string_view label = std::string_view(text).substr(0, equals);
  for (data::MixtureSource& source : sources) {
    if (source.label != label) continue;
    source.*field = value;
    return Status();
  }
  return NotFoundError("\"{}\": no file of the input has the label {}", text, label);
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

Json ToJson(const std::vector<data::MixtureSource>& sources, const data::MixturePlan& plan,
            const data::MixtureOptions& options) {
  Json rows = Json::array();
  for (size_t i = 0; i < sources.size(); ++i) {
    int64_t instances = 0;
    int64_t passes = 0;
    for (const data::MixtureEntry& entry : plan.entries) {
      if (entry.source != static_cast<int64_t>(i)) continue;
      instances += entry.num_instances;
      if (entry.num_instances > 0) passes = std::max(passes, entry.pass + 1);
    }
    rows.push_back({{"source", sources[i].label},
                    {"files", sources[i].file_tokens.size()},
                    {"target_ratio", sources[i].target_ratio},
                    {"instances", instances},
                    {"passes", passes}});
  }
  return {{"instances", plan.num_instances},
          {"target_instances", plan.target_instances},
          {"tokens", plan.num_instances * options.sequence_length},
          {"sources", std::move(rows)}};
}

Status Explain(const Options& options) {
  const OpenedInput opened = TRY(OpenInput(options.input));
  std::vector<data::MixtureSource> sources = SourcesOf(*opened.files);
  for (const std::string& ratio : options.ratios)
    TRY(Assign(sources, ratio, &data::MixtureSource::target_ratio));
  for (const std::string& repeat : options.repeats)
    TRY(Assign(sources, repeat, &data::MixtureSource::max_repetition_ratio));
  data::MixtureOptions mixture = options.mixture;
  mixture.exact = !options.olmo_core;
  const data::MixturePlan plan = TRY(data::PlanMixture(sources, mixture));
  if (options.json) {
    fmt::print("{}\n",
               ToJson(sources, plan, mixture).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}", data::ExplainMixture(sources, mixture, plan));
  }
  return Status();
}

}  // namespace

void AddDataMix(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("mix", "Explain what a mixture of sources would read");
  const auto options = std::make_shared<Options>();
  AddInputOptions(*command, options->input);
  command->add_option("--ratio", options->ratios, "LABEL=SHARE of each source; they sum to 1")
      ->required();
  command->add_option("--repeat", options->repeats, "LABEL=TIMES its tokens may be used (1)");
  command->add_option("--tokens", options->mixture.requested_tokens, "Tokens of the whole mixture")
      ->required();
  command
      ->add_option("--sequence-length", options->mixture.sequence_length, "Tokens of an instance")
      ->required();
  command
      ->add_option("--global-batch-tokens", options->mixture.global_batch_tokens,
                   "The total is rounded up to whole batches")
      ->required();
  command->add_flag("--olmo-core", options->olmo_core,
                    "OLMo-core's rounding as it is, which may end beside the total");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example: ulmus data mix mix.txt --ratio cc=0.7 --ratio wiki=0.3 --tokens 1000000000 "
      "--sequence-length 8192 --global-batch-tokens 4194304");
  command->callback([options, &run] {
    run = [options]() -> int {
      const Status status = Explain(*options);
      return status.ok() ? kExitOk : Fail(status);
    };
  });
}

}  // namespace ulmus::apps
