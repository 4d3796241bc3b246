// `ulmus train`: starts a run, or goes on with the one in the folder.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "base/log.h"
#include "base/stop_signal.h"
#include "train/loop.h"
#include "train/run.h"
#include "train/run_config.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string recipe, run_dir, plugin;
  std::vector<std::string> set, accept;
  int64_t from_step = -1;
  bool start_over = false, no_cache = false, json = false;
};

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

void PrintSummary(const train::TrainSummary& summary, bool json) {
  if (!json) {
    LogInfo("{} at step {}: loss {}, {:.0f} tokens/s; checkpoint {}",
            summary.stopped ? "stopped" : "complete", summary.step,
            summary.loss ? fmt::format("{:.4f}", *summary.loss) : "n/a", summary.tokens_per_s,
            summary.checkpoint.string());
    return;
  }
  const Json line = {{"step", summary.step},
                     {"tokens", summary.tokens},
                     {"loss", OrNull(summary.loss)},
                     {"heldout_loss", OrNull(summary.heldout_loss)},
                     {"tokens_per_s", summary.tokens_per_s},
                     {"mfu", OrNull(summary.mfu)},
                     {"checkpoint", summary.checkpoint.string()},
                     {"stopped", summary.stopped},
                     {"first_step_s", summary.first_step_s}};
  fmt::print("{}\n", line.dump());
}

void PrintComplete(const train::OpenedRun& opened, bool json) {
  LogInfo("already complete at step {}; checkpoint {}", opened.step, opened.checkpoint.string());
  if (!json) return;
  const Json line = {{"step", opened.step},
                     {"checkpoint", opened.checkpoint.string()},
                     {"already_complete", true}};
  fmt::print("{}\n", line.dump());
}

// The recipe's own name below runs/.
std::string DefaultRunDir(const std::string& recipe) {
  return (Path("runs") / Path(recipe).stem()).string();
}

int RunTrain(const Options& options, std::chrono::steady_clock::time_point process_start) {
  Result<Recipe> recipe = train::ResolveRun(options.recipe, options.set);
  if (!recipe.ok()) return Fail(recipe.status());
  train::RunRequest request{
      .run_dir = options.run_dir.empty() ? DefaultRunDir(options.recipe) : options.run_dir,
      .plugin = options.plugin,
      .use_cache = !options.no_cache,
      .from = options.from_step >= 0 ? std::optional(options.from_step) : std::nullopt,
      .start_over = options.start_over,
      .accept = options.accept};
  CatchStopSignals();
  const auto opened = train::OpenRun(*std::move(recipe), request, process_start);
  if (!opened.ok()) return Fail(opened.status());
  if (opened->run == nullptr) {
    PrintComplete(*opened, options.json);
    return kExitOk;
  }
  const auto summary = train::Train(*opened->run);
  if (!summary.ok()) return Fail(summary.status());
  PrintSummary(*summary, options.json);
  return summary->stopped ? kExitRequeue : kExitOk;
}

}  // namespace

void AddTrain(CLI::App& app, Run& run) {
  const auto process_start = std::chrono::steady_clock::now();
  CLI::App* command =
      app.add_subcommand("train", "Start the run of a recipe, or continue what is in its folder");
  const auto options = std::make_shared<Options>();
  command->add_option("RECIPE", options->recipe, "TOML file, or the name of a preset")->required();
  command->add_option("--run-dir", options->run_dir,
                      "Folder of the run; default runs/<name of the recipe>");
  command->add_option("--set", options->set, "key=value, over the recipe; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--from-step", options->from_step,
                   "Go on from the checkpoint of this step instead of the newest; newer ones are "
                   "set aside")
      ->check(CLI::Range(int64_t{0}, INT64_MAX));
  command
      ->add_flag("--start-over", options->start_over,
                 "Begin from initial weights though the folder holds a run")
      ->excludes("--from-step");
  command
      ->add_option("--accept", options->accept,
                   "Key that may differ from the recipe the run began with; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--plugin", options->plugin, "PJRT plugin: path, or name of a wheel");
  command->add_flag("--no-cache", options->no_cache,
                    "Compile anew instead of using the cache of compiled programs");
  command->add_flag("--json", options->json, "Print the last metrics as one line of JSON");
  command->footer(
      "Example, from your own text to a sample of what was learnt:\n"
      "  ulmus tokenize --tokenizer demo/tokenizer.json --out tokens/mine text/*.txt\n"
      "  ulmus train tiny --run-dir runs/mine --set 'data.paths=[\"tokens/mine-00000.npy\"]' \\\n"
      "    --set train.tokenizer=demo/tokenizer.json\n"
      "  ulmus generate runs/mine --prompt 'Once upon'\n"
      "Another tokenizer needs its own data.vocab_size, eos_id and pad_id. With train.tokenizer "
      "checkpoints carry it along, so that `generate` reads and writes text; without, only ids.\n"
      "SIGTERM or SIGINT ends the run at the next step with a complete checkpoint and exit code "
      "75; the same command goes on. A second signal ends it at once.");
  command->callback([options, process_start, &run] {
    run = [options, process_start] { return RunTrain(*options, process_start); };
  });
}

}  // namespace ulmus::apps
