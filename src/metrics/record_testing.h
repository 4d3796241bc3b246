// Records and small checks that the tests of this module share.
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "metrics/jsonl.h"
#include "metrics/step_record.h"
#include "metrics/tensorboard.h"

namespace ulmus::metrics {

// A record whose numbers all depend on the step and need all their digits.
inline StepRecord TestStep(int64_t step) {
  const auto x = static_cast<double>(step);
  return {.step = step,
          .tokens = step * 4096,
          .loss = 8.357255935668945 / x,
          .z_loss = 6.97759213e-4 / x,
          .targets = 4080,
          .loss_divisor = 4080,
          .grad_norm = 1.88190341 / x,
          .update_norm = 0.1 / x,
          .learning_rate = 4e-5 * x,
          .applied = step % 7 == 3 ? 0 : 1,
          .skipped = (step + 4) / 7,
          .adam_count = step - (step + 4) / 7,
          .id_hash = fmt::format("{:016x}", static_cast<uint64_t>(step) * 0x9e3779b97f4a7c15u),
          .filtered = 0,
          .norms = {},
          .data_wait_s = 0.001,
          .step_s = 0.1,
          .tokens_per_s = 40960,
          .flops_per_s = 1e12,
          .mfu = std::nullopt,
          .resident_bytes = 1 << 30,
          .device_bytes = std::nullopt,
          .wall_time_s = 1.7e9 + x};
}

// Writes a file without the sync that makes WriteFileAtomic too slow for a loop over all bytes.
inline void PutFile(const Path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  CHECK(file.flush().good(), "{}", path);
}

inline std::vector<int64_t> OneTo(int64_t last) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= last; ++step) steps.push_back(step);
  return steps;
}

inline std::vector<Record> ReadAll(const Path& path) {
  std::vector<Record> records;
  const Status read = ReadMetrics(path, [&](const Record& record) {
    records.push_back(record);
    return Status();
  });
  CHECK(read.ok(), "{}", read.message());
  return records;
}

inline std::vector<int64_t> JsonSteps(const Path& path) {
  std::vector<int64_t> steps;
  for (const Record& record : ReadAll(path))
    if (std::holds_alternative<StepRecord>(record)) steps.push_back(StepOf(record));
  return steps;
}

// What a reader shows for `tag` that follows the rule of session starts, over all files of a
// folder.
inline std::vector<int64_t> ShownSteps(const Path& folder, std::string_view tag = "train/loss") {
  std::vector<int64_t> steps;
  const Result<std::vector<Path>> files = ListEventFiles(folder);
  for (const Path& path : *files) {
    const Status read = ReadEvents(path, [&](const Event& event) {
      if (event.session_start) std::erase_if(steps, [&](int64_t s) { return s >= event.step; });
      for (const NamedValue& value : event.values)
        if (value.name == tag) steps.push_back(event.step);
      return Status();
    });
    CHECK(read.ok(), "{}", read.message());
  }
  return steps;
}

// While it lives, no file can grow beyond `bytes`: what a full disk looks like to a writer.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(int64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    CHECK(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit tight{.rlim_cur = static_cast<rlim_t>(bytes), .rlim_max = before_.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  }
  ~FileSizeLimit() {
    CHECK(setrlimit(RLIMIT_FSIZE, &before_) == 0);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace ulmus::metrics
