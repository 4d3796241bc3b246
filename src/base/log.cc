#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "base/escape_controls.h"

namespace ulmus {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"debug", "info", "warning", "error"};
constexpr std::string_view kClearLine = "\r\x1b[K";

// The one logger of the process: standard error is one, too.
struct Sinks {
  std::mutex mutex;     // guards the rest, and keeps lines whole
  FileDescriptor file;  // not valid: no file
  std::string bar;      // progress bar on the terminal's last line, or empty
};

Sinks& TheSinks() {
  static Sinks* const sinks = new Sinks;  // never destroyed: threads may log while the process ends
  return *sinks;
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

std::atomic<LogLevel>& MinLevel() {
  static std::atomic<LogLevel> level = [] {
    const char* name = std::getenv("ULMUS_LOG");
    if (name == nullptr || *name == '\0') return LogLevel::kInfo;
    const Result<LogLevel> parsed = ParseLogLevel(name);
    if (parsed.ok()) return *parsed;
    LogLine(LogLevel::kWarning, fmt::format("ULMUS_LOG: {}", parsed.error().message()));
    return LogLevel::kInfo;
  }();
  return level;
}

// Puts `bar` on the terminal's last line in place of the one there; empty removes it.
void ShowBar(std::string_view bar) {
  Sinks& sinks = TheSinks();
  std::lock_guard lock(sinks.mutex);
  sinks.bar = bar;
  WriteAll(STDERR_FILENO, fmt::format("{}{}", kClearLine, bar));
}

// "3.2k", "1.25M": counts that fit a status line.
std::string ShortCount(double count) {
  constexpr std::array<const char*, 5> kSuffixes = {"", "k", "M", "G", "T"};
  size_t k = 0;
  for (; count >= 1000 && k + 1 < kSuffixes.size(); ++k) count /= 1000;
  return k == 0 ? fmt::format("{:.4g}", count) : fmt::format("{:.3g}{}", count, kSuffixes[k]);
}

std::string ShortTime(double seconds) {
  const auto s = static_cast<int64_t>(std::min(seconds, 1e9));
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

LogLevel MinLogLevel() { return MinLevel().load(std::memory_order_relaxed); }
void SetMinLogLevel(LogLevel level) { MinLevel().store(level, std::memory_order_relaxed); }

Result<LogLevel> ParseLogLevel(std::string_view name) {
  const auto found = std::find(kLevelNames.begin(), kLevelNames.end(), name);
  if (found == kLevelNames.end())
    return InvalidArgumentError("\"{}\" is no log level; use debug, info, warning or error", name);
  return static_cast<LogLevel>(found - kLevelNames.begin());
}

Status SetLogFile(const Path& path) {
  FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file.valid()) return ErrnoError(errno, path, "open log");
  Sinks& sinks = TheSinks();
  std::lock_guard lock(sinks.mutex);
  sinks.file = std::move(file);
  return Status();
}

void CloseLogFile() {
  Sinks& sinks = TheSinks();
  std::lock_guard lock(sinks.mutex);
  sinks.file.Close();
}

void LogLine(LogLevel level, std::string_view message) {
  const bool prefixed = level >= LogLevel::kWarning;
  const std::string line =
      fmt::format("{}{}{}\n", prefixed ? kLevelNames[static_cast<size_t>(level)] : "",
                  prefixed ? ": " : "", EscapeControls(message));
  Sinks& sinks = TheSinks();
  std::lock_guard lock(sinks.mutex);
  // One write per line: lines of several processes on one terminal stay whole.
  if (sinks.bar.empty())
    WriteAll(STDERR_FILENO, line);
  else
    WriteAll(STDERR_FILENO, fmt::format("{}{}{}", kClearLine, line, sinks.bar));
  if (sinks.file.valid()) WriteAll(sinks.file.get(), line);
}

bool IsTerminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

Progress::Progress(std::string label, int64_t total, ProgressOptions options)
    : label_(std::move(label)),
      total_(total),
      options_(std::move(options)),
      terminal_(options_.terminal.value_or(IsTerminal())) {
  start_s_ = options_.now_s ? options_.now_s() : SteadySeconds();
  next_s_ = start_s_ + options_.quiet_s;
}

Progress::~Progress() { Finish(); }

void Progress::Update(int64_t done) {
  done_ = done;
  const double now = options_.now_s ? options_.now_s() : SteadySeconds();
  if (now < next_s_ || finished_) return;
  next_s_ = now + (terminal_ ? options_.bar_interval_s : options_.line_interval_s);
  shown_ = true;
  Draw(Describe(now - start_s_));
}

void Progress::Finish() {
  if (finished_) return;
  finished_ = true;
  if (!shown_) return;
  const double elapsed_s = (options_.now_s ? options_.now_s() : SteadySeconds()) - start_s_;
  const std::string line =
      fmt::format("{}: {} {} in {}", label_, ShortCount(static_cast<double>(done_)), options_.unit,
                  ShortTime(elapsed_s));
  if (options_.draw) return options_.draw(fmt::format("{}{}\n", terminal_ ? kClearLine : "", line));
  if (terminal_) ShowBar("");
  Log(LogLevel::kInfo, "{}", line);
}

std::string Progress::Describe(double elapsed_s) const {
  constexpr int kBarWidth = 24;
  const auto done = static_cast<double>(done_), total = static_cast<double>(total_);
  const double rate = elapsed_s > 0 ? done / elapsed_s : 0;
  const std::string speed = fmt::format("{} {}/s", ShortCount(rate), options_.unit);
  if (total_ <= 0)
    return fmt::format("{}: {} {}, {}", label_, ShortCount(done), options_.unit, speed);
  const double fraction = std::clamp(done / total, 0.0, 1.0);
  const std::string left = rate > 0 ? ShortTime(std::max(0.0, total - done) / rate) : "?";
  std::string bar;
  if (terminal_) {
    const int filled = static_cast<int>(fraction * kBarWidth);
    bar = fmt::format(" [{}{}]", std::string(static_cast<size_t>(filled), '='),
                      std::string(static_cast<size_t>(kBarWidth - filled), ' '));
  }
  return fmt::format("{}:{} {:.0f}% {}/{} {}, {}, {} left", label_, bar, 100 * fraction,
                     ShortCount(done), ShortCount(total), options_.unit, speed, left);
}

void Progress::Draw(const std::string& text) {
  if (options_.draw)
    return options_.draw(terminal_ ? fmt::format("{}{}", kClearLine, text) : text + "\n");
  if (terminal_) return ShowBar(text);
  Log(LogLevel::kInfo, "{}", text);
}

}  // namespace ulmus
