// metrics.jsonl: one JSON object a line, appended as the run goes (docs/formats/metrics.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/file.h"
#include "base/status.h"
#include "metrics/append_file.h"
#include "metrics/sink.h"
#include "metrics/step_record.h"

namespace ulmus::metrics {

inline constexpr int64_t kMaxLineBytes = int64_t{1} << 20;

// Calls `visit` with each record in order; its error ends the reading and is returned. A last line
// without a line end is what a killed writer leaves: it is passed over. kDataLoss, with the number
// of the line, for anything else that is no record, is longer than kMaxLineBytes, or repeats a
// step. Memory: one line.
Status ReadMetrics(const Path& path, const std::function<Status(const Record&)>& visit);

struct MetricsRepair {
  int64_t kept = 0;        // records
  int64_t dropped = 0;     // records of steps after the one resumed from
  int64_t torn_bytes = 0;  // of a line that was being written
  int64_t last_step = 0;   // of the step records kept; 0: none
};
// Leaves what a run has that goes on after `step`: all records up to it. From 0 the run starts anew
// and evaluates its initial weights again, so only events stay. Fine if there is no file.
// `on_kept`, if given, receives the records that stay, in order.
Result<MetricsRepair> RepairMetrics(const Path& path, int64_t step,
                                    const std::function<void(const Record&)>& on_kept = nullptr);

// Appends to a file that RepairMetrics has put in order.
class JsonlSink : public Sink {
 public:
  static Result<std::unique_ptr<Sink>> Open(const Path& path);
  Status Write(const Record& record) override;
  Status Flush() override { return file_.Sync(); }

 private:
  explicit JsonlSink(AppendFile file) : file_(std::move(file)) {}
  AppendFile file_;
};

}  // namespace ulmus::metrics
