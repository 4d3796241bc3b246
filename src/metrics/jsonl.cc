#include "metrics/jsonl.h"

#include <optional>

#include "metrics/line_reader.h"
#include "metrics/record_json.h"

namespace ulmus::metrics {
namespace {

struct Line {
  std::optional<Record> record;  // empty: torn
  int64_t begin, end;
};

// All lines of the file as records, with the torn one at the end.
Status ReadLines(const Path& path, const std::function<Status(Line)>& visit) {
  LineReader lines = TRY(LineReader::Open(path, kMaxLineBytes));
  int64_t last_step = 0;
  while (TRY(lines.Next())) {
    if (!lines.whole()) return visit({std::nullopt, lines.begin(), lines.end()});
    const auto damaged = [&](const Status& why) {
      return why.WithContext(fmt::format("{}:{}", path, lines.number()));
    };
    Result<Record> record = ParseRecord(lines.line());
    if (!record.ok()) return damaged(record.error());
    if (const auto* step = std::get_if<StepRecord>(&*record)) {
      if (step->step <= last_step)
        return damaged(
            DataLossError("step {} comes after step {}; each step belongs here once, in order",
                          step->step, last_step));
      last_step = step->step;
    }
    TRY(visit({std::move(*record), lines.begin(), lines.end()}));
  }
  return {};
}

bool Stays(const Record& record, int64_t step) {
  if (std::holds_alternative<EvalRecord>(record) && step == 0) return false;
  return StepOf(record) <= step;
}

}  // namespace

Status ReadMetrics(const Path& path, const std::function<Status(const Record&)>& visit) {
  return ReadLines(path,
                   [&](const Line& line) { return line.record ? visit(*line.record) : Status(); });
}

Result<MetricsRepair> RepairMetrics(const Path& path, int64_t step,
                                    const std::function<void(const Record&)>& on_kept) {
  MetricsRepair repair;
  if (!TRY(PathExists(path))) return repair;
  ByteRanges stays;
  const Status read = ReadLines(path, [&](const Line& line) {
    if (!line.record) {
      repair.torn_bytes = line.end - line.begin;
    } else if (!Stays(*line.record, step)) {
      ++repair.dropped;
    } else {
      ++repair.kept;
      stays.Add(line.begin, line.end);
      if (const auto* record = std::get_if<StepRecord>(&*line.record))
        repair.last_step = record->step;
      if (on_kept) on_kept(*line.record);
    }
    return Status();
  });
  if (read.code() == StatusCode::kDataLoss) {
    return DataLossError("{}; move the file away to go on without this history", read.message());
  }
  TRY(read);
  TRY(stays.CutFile(path));
  return repair;
}

Result<std::unique_ptr<Sink>> JsonlSink::Open(const Path& path) {
  return std::unique_ptr<Sink>(new JsonlSink(TRY(AppendFile::Open(path))));
}

Status JsonlSink::Write(const Record& record) { return file_.Append(ToJson(record) + "\n"); }

}  // namespace ulmus::metrics
