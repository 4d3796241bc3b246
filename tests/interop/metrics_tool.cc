// Writes run directories for metrics_interop.py.
//   metrics_tool FOLDER RESUME_STEP LAST_STEP [die]   records of steps RESUME_STEP+1 .. LAST_STEP;
//   `die`
//                                                   ends the process as a kill does, in a torn
//                                                   record
#include <fmt/format.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>

#include "base/log.h"
#include "metrics/recorder.h"
#include "metrics/run_directory.h"
#include "metrics/tensorboard.h"

namespace ulmus::metrics {
namespace {

StepRecord Step(int64_t step) {
  StepRecord record{.step = step, .tokens = 4096 * step};
  record.loss = 8.0 / static_cast<double>(step);
  record.grad_norm = step == 7 ? std::nan("") : 1.5;
  record.wall_time_s = WallTimeS();
  return record;
}

Status Write(const Path& folder, int64_t resume_step, int64_t last_step) {
  const RunDirectory run = TRY(RunDirectory::Open(folder));
  Recorder recorder =
      TRY(Recorder::Open(run.paths(), {.resume_step = resume_step, .total_steps = last_step}));
  for (int64_t step = resume_step + 1; step <= last_step; ++step) {
    TRY(recorder.Write(Step(step)));
    if (step % 10 == 0) {
      TRY(recorder.Write(EvalRecord{.step = step,
                                    .set = "bible",
                                    .loss = {92.0 / static_cast<double>(step), 10},
                                    .wall_time_s = WallTimeS()}));
    }
  }
  return recorder.Flush();
}

// What a writer leaves that dies inside a record.
Status Tear(const RunPaths& paths) {
  const std::vector<Path> files = TRY(ListEventFiles(paths.root));
  std::ofstream(files.back(), std::ios::app) << std::string("\x30\0\0\0\0\0", 6);
  std::ofstream(paths.metrics(), std::ios::app) << "{\"kind\":\"step\",\"st";
  return {};
}

Status Main(std::span<char*> args) {
  if (args.size() < 4)
    return InvalidArgumentError("usage: metrics_tool FOLDER RESUME_STEP LAST_STEP [die]");
  SetMinLogLevel(LogLevel::kError);
  TRY(Write(args[1], std::atoll(args[2]), std::atoll(args[3])));
  if (args.size() == 4) return {};
  TRY(Tear({args[1]}));
  std::raise(SIGKILL);
  return {};
}

}  // namespace
}  // namespace ulmus::metrics

int main(int argc, char** argv) {
  const ulmus::Status status = ulmus::metrics::Main(std::span(argv, static_cast<size_t>(argc)));
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return ulmus::ExitCodeFor(status);
}
