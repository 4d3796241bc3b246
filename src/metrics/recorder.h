// All sinks of one run, opened together: what the training loop writes to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "metrics/console_sink.h"
#include "metrics/jsonl.h"
#include "metrics/run_directory.h"
#include "metrics/sink.h"

namespace ulmus::metrics {

struct RecorderOptions {
  int64_t resume_step = 0;  // of the checkpoint that the run goes on from; 0: initial weights
  int64_t total_steps = 0;
  int64_t line_interval = 10;  // steps between lines for people
  bool tensorboard = true;
  std::function<void(const Record&)> on_kept = nullptr;  // as RepairMetrics
};

class Recorder : public Sink {
 public:
  // Puts metrics.jsonl and the event files in order for a run that goes on after `resume_step`, so
  // that each step is there once whatever was killed when; then opens the sinks. The caller holds
  // the RunDirectory.
  static Result<Recorder> Open(const RunPaths& paths, const RecorderOptions& options);
  // For other sets of sinks.
  explicit Recorder(std::vector<std::unique_ptr<Sink>> sinks) : sinks_(std::move(sinks)) {}

  // All sinks get the record, also when one fails; the first error is returned.
  Status Write(const Record& record) override;
  Status Flush() override;

  const MetricsRepair& repair() const { return repair_; }

 private:
  std::vector<std::unique_ptr<Sink>> sinks_;
  MetricsRepair repair_;
};

}  // namespace ulmus::metrics
