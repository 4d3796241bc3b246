// TensorBoard's event files (docs/formats/metrics.md): one per start of the run, named so that
// their order is the order of the starts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "metrics/append_file.h"
#include "metrics/sink.h"
#include "metrics/step_record.h"

namespace ulmus::metrics {

inline constexpr int64_t kMaxEventBytes = int64_t{64} << 20;

// What an event file says, reduced to what we write.
struct Event {
  double wall_time_s = 0;
  int64_t step = 0;
  std::string file_version = {};        // of the first event of a file, "brain.Event:2"
  bool session_start = false;           // readers forget all events of this and later steps
  std::vector<NamedValue> values = {};  // tag and value

  friend bool operator==(const Event&, const Event&) = default;
};

// Calls `visit` with each event in order. A torn record at the end is passed over; kDataLoss, with
// the place, for a checksum that differs, a length above kMaxEventBytes, or bytes that are no
// event.
Status ReadEvents(const Path& path, const std::function<Status(const Event&)>& visit);

// Event files of a folder, in the order that TensorBoard reads them.
Result<std::vector<Path>> ListEventFiles(const Path& folder);

// Removes the values of steps after `step` (from 0: all) from all event files of the folder, and
// torn records, as RepairMetrics does.
Status RepairEvents(const Path& folder, int64_t step);

// A new event file in a folder that RepairEvents has put in order. It begins by telling readers
// that already show later steps to forget those after `step`.
class TensorBoardSink : public Sink {
 public:
  static Result<std::unique_ptr<Sink>> Open(const Path& folder, int64_t step);
  Status Write(const Record& record) override;
  Status Flush() override { return file_.Sync(); }

 private:
  explicit TensorBoardSink(AppendFile file) : file_(std::move(file)) {}
  AppendFile file_;
};

}  // namespace ulmus::metrics
