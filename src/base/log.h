// Log lines and progress for people: standard error and, if asked, a file. Records for machines go
// to metrics. Lines carry no clock, so that the logs of a run and of its repetition can be
// compared.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace ulmus {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below the level are dropped. Starts as the environment's ULMUS_LOG ("debug", "info",
// "warning", "error"), else kInfo.
LogLevel MinLogLevel();
void SetMinLogLevel(LogLevel level);
// kInvalidArgument lists the names that exist.
Result<LogLevel> ParseLogLevel(std::string_view name);

// Also appends all lines to the file (a run directory's log.txt); replaces an earlier one. Lines
// that cannot be written there are lost without stopping the run.
Status SetLogFile(const Path& path);
void CloseLogFile();

// Writes one line; "warning: " and "error: " go before the message of those levels. Any thread.
void LogLine(LogLevel level, std::string_view message);

template <class... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= MinLogLevel()) LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kWarning, format, std::forward<Args>(args)...);
}
template <class... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  Log(LogLevel::kError, format, std::forward<Args>(args)...);
}

// True if standard error is a terminal that can redraw a line.
bool IsTerminal();

struct ProgressOptions {
  std::string unit = "items";   // "tokens", "files"
  double line_interval_s = 10;  // without a terminal: a plain line at most this often
  double bar_interval_s = 0.1;  // on a terminal: a redraw at most this often
  double quiet_s = 2;           // work that ends sooner shows nothing
  // For tests; by default the real terminal, steady clock and log.
  std::optional<bool> terminal = std::nullopt;
  std::function<double()> now_s = nullptr;
  std::function<void(std::string_view)> draw =
      nullptr;  // receives what would be printed, line ends included
};

// Progress of work of known size (or unknown: total 0): a bar with remaining time on a terminal,
// plain lines elsewhere.
//   Progress progress("tokenize", num_files, {.unit = "files"});
//   for (...) progress.Add(1);
// One thread. Log lines of other threads do not tear the bar.
class Progress {
 public:
  Progress(std::string label, int64_t total, ProgressOptions options = {});
  ~Progress();  // as Finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(int64_t done);
  void Add(int64_t count) { Update(done_ + count); }
  // Removes the bar and prints one last line with the total and time taken, if anything was shown
  // before.
  void Finish();

 private:
  std::string Describe(double elapsed_s) const;
  void Draw(const std::string& text);

  const std::string label_;
  const int64_t total_;
  const ProgressOptions options_;
  const bool terminal_;
  double start_s_ = 0;
  double next_s_ = 0;  // nothing is shown before
  int64_t done_ = 0;
  bool shown_ = false;
  bool finished_ = false;
};

}  // namespace ulmus
