#include "metrics/recorder.h"

#include "metrics/tensorboard.h"

namespace ulmus::metrics {

Result<Recorder> Recorder::Open(const RunPaths& paths, const RecorderOptions& options) {
  const MetricsRepair repair =
      TRY(RepairMetrics(paths.metrics(), options.resume_step, options.on_kept));
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(TRY(JsonlSink::Open(paths.metrics())));
  if (options.tensorboard) {
    TRY(RepairEvents(paths.root, options.resume_step));
    sinks.push_back(TRY(TensorBoardSink::Open(paths.root, options.resume_step)));
  }
  sinks.push_back(
      std::make_unique<ConsoleSink>(ConsoleOptions{.resume_step = options.resume_step,
                                                   .total_steps = options.total_steps,
                                                   .line_interval = options.line_interval}));
  Recorder recorder(std::move(sinks));
  recorder.repair_ = repair;
  return recorder;
}

Status Recorder::Write(const Record& record) {
  Status first;
  for (const auto& sink : sinks_) {
    Status written = sink->Write(record);
    if (first.ok()) first = std::move(written);
  }
  return first;
}

Status Recorder::Flush() {
  Status first;
  for (const auto& sink : sinks_) {
    Status flushed = sink->Flush();
    if (first.ok()) first = std::move(flushed);
  }
  return first;
}

}  // namespace ulmus::metrics
