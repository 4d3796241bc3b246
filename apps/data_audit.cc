// `ulmus data audit`: proves that a recipe reads each instance of an epoch once, whatever its
// hosts, stops and resizes; or judges the instance ids that another program logged.
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/data_commands.h"
#include "apps/data_input.h"
#include "apps/data_recipe.h"
#include "base/log.h"
#include "data/audit.h"
#include "data/config.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string recipe;
  std::vector<std::string> set;
  std::vector<int64_t> hosts = {1};
  std::vector<int64_t> resume_at;
  std::vector<std::string> resize;
  int64_t microbatches = 1;
  std::string ids;
  int64_t instances = 0;
  int64_t list = 20;
  bool json = false;
  std::vector<std::string> given;  // flags, "--hosts"
};

Json UsageJson(const data::UsageCount& usage, bool holds, int64_t list) {
  return {{"instances", usage.num_instances()},
          {"used_once", usage.used_once()},
          {"repeated", usage.repeated()},
          {"missing", usage.missing()},
          {"records", usage.records()},
          {"unknown", usage.unknown()},
          {"holds", holds},
          {"repeated_ids", usage.RepeatedIds(list)},
          {"missing_ids", usage.MissingIds(list)}};
}

void PrintIds(const char* what, const std::vector<int64_t>& ids, int64_t total) {
  if (ids.empty()) return;
  std::string text;
  for (const int64_t id : ids) text += fmt::format(" {}", id);
  fmt::print("  {}:{}{}\n", what, text, total > static_cast<int64_t>(ids.size()) ? " ..." : "");
}

void PrintUsage(const data::UsageCount& usage, int64_t list) {
  fmt::print("{} instances: {} used once, {} repeated, {} missing\n", usage.num_instances(),
             usage.used_once(), usage.repeated(), usage.missing());
  PrintIds("repeated", usage.RepeatedIds(list), usage.repeated());
  PrintIds("missing", usage.MissingIds(list), usage.missing());
  if (usage.unknown() > 0) fmt::print("  {} ids are no instance of this data\n", usage.unknown());
}

void PrintJson(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void PrintVerdict(bool holds) { fmt::print("{}\n", holds ? "holds" : "DOES NOT HOLD"); }

// How many instances there are, and how many of them an epoch leaves out.
struct Expected {
  int64_t instances = 0;
  int64_t dropped = 0;
};
Result<Expected> ExpectedOf(const Options& options) {
  if (options.instances > 0) return Expected{options.instances, 0};
  const data::DataConfig config = TRY(ReadDataConfig(options.recipe, options.set));
  const data::Data opened = TRY(data::OpenData(config));
  return Expected{opened.source->num_instances(), opened.order->dropped_per_epoch()};
}

Result<int> JudgeIds(const Options& options) {
  const Expected expected = TRY(ExpectedOf(options));
  const data::UsageCount usage = TRY(data::CountLoggedIds(options.ids, expected.instances));
  const bool holds =
      usage.repeated() == 0 && usage.unknown() == 0 && usage.missing() <= expected.dropped;
  if (options.json) {
    PrintJson(UsageJson(usage, holds, options.list));
  } else {
    PrintUsage(usage, options.list);
    PrintVerdict(holds);
  }
  return holds ? kExitOk : kExitNotHolding;
}

Result<int> AuditRecipe(const Options& options) {
  data::AuditOptions audit = {.hosts = options.hosts,
                              .resume_at = options.resume_at,
                              .num_microbatches = options.microbatches};
  for (const std::string& text : options.resize)
    audit.resizes.push_back(TRY(data::ParseResize(text)));
  const data::DataConfig config = TRY(ReadDataConfig(options.recipe, options.set));
  audit.store = data::StoreOf(config);
  const data::Data opened = TRY(data::OpenData(config));
  const auto start = std::chrono::steady_clock::now();
  const data::AuditReport report = TRY(data::AuditEpoch(*opened.order, *opened.source, audit));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) {
    Json json = UsageJson(report.usage, report.holds, options.list);
    json["steps"] = report.steps;
    json["dropped"] = report.dropped;
    json["consumed_hash"] = report.consumed_hash;
    json["fingerprint"] = opened.source->fingerprint();
    json["seconds"] = seconds;
    json["runs"] = Json::array();
    for (const data::AuditRun& run : report.runs)
      json["runs"].push_back({{"name", run.name}, {"holds", run.holds}, {"failure", run.failure}});
    PrintJson(json);
  } else {
    fmt::print("order {}, {} steps of {} instances, hash of all ids {}\n",
               data::Name(opened.order->config().kind), report.steps, opened.order->batch_size(),
               report.consumed_hash);
    PrintUsage(report.usage, options.list);
    if (report.dropped > 0)
      fmt::print("  {} fill no batch: an epoch of this order leaves them out\n", report.dropped);
    for (const data::AuditRun& run : report.runs)
      fmt::print("  {:<40} {}\n", run.name, run.holds ? "same batches" : run.failure);
    PrintVerdict(report.holds);
  }
  return report.holds ? kExitOk : kExitNotHolding;
}

// Nothing is passed over in silence.
Status CheckFlags(const Options& options) {
  const auto given = [&](std::string_view flag) {
    return std::ranges::find(options.given, flag) != options.given.end();
  };
  if (options.recipe.empty() && (options.ids.empty() || options.instances == 0)) {
    return InvalidArgumentError(
        "nothing to audit: give a RECIPE, or --ids FILE with --instances N");
  }
  if (!options.recipe.empty() && given("--instances"))
    return InvalidArgumentError("--instances: the recipe's data says it; leave it out");
  if (options.recipe.empty() && given("--set"))
    return InvalidArgumentError("--set: there is no recipe to set it in");
  for (const char* flag : {"--hosts", "--resume-at", "--resize", "--microbatches"}) {
    if (!options.ids.empty() && given(flag))
      return InvalidArgumentError("{}: --ids FILE judges ids as they are; leave out one of the two",
                                  flag);
  }
  return Status();
}

Result<int> Audit(const Options& options) {
  TRY(CheckFlags(options));
  return options.ids.empty() ? AuditRecipe(options) : JudgeIds(options);
}

int RunAudit(const Options& options) {
  const Result<int> code = Audit(options);
  return code.ok() ? *code : Fail(code.status());
}

}  // namespace

void AddDataAudit(CLI::App& app, Run& run) {
  CLI::App* command =
      app.add_subcommand("audit", "Prove that each instance of an epoch is used exactly once");
  const auto options = std::make_shared<Options>();
  command->add_option("recipe", options->recipe, "Recipe with a [data] table");
  command->add_option("--set", options->set, "key=value over the recipe's");
  command->add_option("--hosts", options->hosts, "Numbers of hosts to walk the epoch with")
      ->delimiter(',')
      ->check(AtLeast(1))
      ->capture_default_str();
  command->add_option("--resume-at", options->resume_at, "Steps at which runs stop and go on")
      ->delimiter(',')
      ->check(AtLeast(0));
  command->add_option("--resize", options->resize, "BEFORE:AFTER@STEP, hosts that change at a step")
      ->delimiter(',');
  command->add_option("--microbatches", options->microbatches, "Pieces of a batch")
      ->check(AtLeast(1))
      ->capture_default_str();
  command->add_option(
      "--ids", options->ids,
      "Judge these ids instead: text, numbers separated by spaces, commas or lines");
  command
      ->add_option("--instances", options->instances,
                   "With --ids and no recipe: how many there are")
      ->check(AtLeast(1));
  command->add_option("--list", options->list, "Ids to list at most")
      ->check(AtLeast(0))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example: ulmus data audit run.toml --hosts 1,4,16 --resume-at 1000 --resize 8:4@1000\n"
      "         ulmus data audit --ids maxtext_ids.txt --instances 64\n"
      "Exit code 4 if an instance is used twice or not at all, or a run reads other batches.");
  command->callback([command, options, &run] {
    options->given = GivenFlags(*command);
    run = [options] { return RunAudit(*options); };
  });
}

}  // namespace ulmus::apps
