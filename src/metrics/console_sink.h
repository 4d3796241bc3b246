// Records for people: a bar with the remaining time on a terminal, and a line every few steps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "metrics/sink.h"

namespace ulmus::metrics {

struct ConsoleOptions {
  int64_t resume_step = 0;     // the step before the first
  int64_t total_steps = 0;     // of the whole run
  int64_t line_interval = 10;  // steps between lines; the first and the last step always have one
  // For tests; by default the log and the terminal.
  std::function<void(LogLevel, std::string_view)> log = nullptr;
  ProgressOptions progress = {};
};

class ConsoleSink : public Sink {
 public:
  explicit ConsoleSink(ConsoleOptions options);
  Status Write(const Record& record) override;
  Status Flush() override { return {}; }

 private:
  void Show(const StepRecord& record);
  void Show(const EvalRecord& record);
  void Show(const EventRecord& record);
  void Print(LogLevel level, const std::string& line);

  const ConsoleOptions options_;
  std::optional<Progress> progress_;  // on a terminal only
};

}  // namespace ulmus::metrics
