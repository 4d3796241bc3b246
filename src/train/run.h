// Everything a run has open while it trains: folder, data, device, records. Made by OpenRun, used
// by the loop (train/loop.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/recipe.h"
#include "base/status.h"
#include "data/config.h"
#include "data/loader.h"
#include "metrics/heldout_alarm.h"
#include "metrics/recorder.h"
#include "metrics/run_directory.h"
#include "pjrt/cache.h"
#include "train/heldout.h"
#include "train/run_config.h"
#include "train/run_state.h"
#include "train/trainer.h"

namespace ulmus::train {

// What the command line says beside the recipe.
struct RunRequest {
  Path run_dir;
  std::string plugin;           // a path or the name of a wheel; empty: the best CPU plugin
  bool use_cache = true;        // of compiled programs
  std::optional<int64_t> from;  // go on from this step instead of the newest
  bool start_over = false;      // from initial weights, though the folder says it had checkpoints
  // Keys that may differ from the recipe the run began with. Those of kFreeKeys always may.
  std::vector<std::string> accept;
};

// Keys and tables that change no number of a run, or only where it ends: they may differ when it
// goes on.
std::span<const std::string_view> FreeKeys();
// kInvalidArgument lists keys that differ between the recipe a run began with and the one to go on
// with, unless they are free or accepted.
Status CheckSameRun(const Recipe& before, const Recipe& now, std::span<const std::string> accept);

// kInvalidArgument if `accept` names no key and no table, with the nearest one.
Status CheckAccepted(std::span<const std::string> accept);
// kInvalidArgument if no run directory can be at `path`: it or what is above it is a file, or may
// not be written to. Looking writes nothing.
Status CheckRunDir(const Path& path);

// A step that runs on the device, and what the host knew when it started it.
struct StartedStep {
  int64_t step = 0, tokens = 0;
  double lr = 0;
  std::string id_hash;
  std::vector<int64_t> instance_ids;  // of the global batch
  int64_t filtered = 0, divisor = 0;
  double data_wait_s = 0;
};

struct Run {
  using Clock = std::chrono::steady_clock;

  RunRequest request;
  Recipe recipe;
  std::string tokenizer_json;  // of train.tokenizer; empty: none
  RunConfig config;
  optim::Schedule schedule;
  int64_t last_step = 0;
  Clock::time_point process_start;

  // In the order in which they are made; gone in the opposite order.
  std::optional<metrics::RunDirectory> directory;
  data::Data data;
  HeldOutSets heldout;
  pjrt::CompilationCache cache;
  std::unique_ptr<pjrt::Client> client;
  std::unique_ptr<Trainer> trainer;
  std::unique_ptr<data::Loader> loader;
  std::optional<metrics::Recorder> recorder;
  metrics::HeldoutAlarm alarm;

  RunState state;                   // after the last step started
  int64_t first_step = 0;           // state.step when the process began
  std::deque<StartedStep> started;  // as Trainer's pending steps
  Clock::time_point last_finish;    // of a step
  int64_t timed_steps = 0;          // of this process, the first left out
  double timed_s = 0;
  std::optional<metrics::StepRecord> last_record;
  std::vector<HeldOutLoss> last_heldout;
  int64_t last_saved = -1;
  Path last_checkpoint;
  int64_t rollbacks_since_save = 0;
  double flops_per_token = 0, peak_flops_per_s = 0;  // 0: no peak is known

  const metrics::RunPaths& paths() const { return directory->paths(); }
};

struct OpenedRun {
  std::unique_ptr<Run> run;  // null if the run was complete already
  int64_t step = 0;
  Path checkpoint;
};

// Validates, locks the folder, opens data, compiles, and fills the state: from the newest
// checkpoint in the folder, else from train.start_from, else as drawn. A complete run is left as it
// is. Errors name what is wrong and what to do; nothing was written but LOCK if the recipe or the
// data do not hold.
Result<OpenedRun> OpenRun(Recipe recipe, const RunRequest& request,
                          Run::Clock::time_point process_start);

// An event record of `step`; names: metrics/step_record.h.
Status RecordEvent(Run& run, int64_t step, std::string_view name, std::string text);

// Writes the state after the last step as checkpoints/step-..., commits, and deletes what is not
// kept.
Status SaveRun(Run& run);

// The state of the newest checkpoint again, with the counters as they are: the run goes on with the
// data after the last step. kFailedPrecondition if there is no checkpoint or going back did not
// help.
Status RollBack(Run& run);

}  // namespace ulmus::train
