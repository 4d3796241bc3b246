#include "data/parallel.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "base/thread.h"

namespace ulmus::data {
namespace {

class Work {
 public:
  Work(int64_t count, const std::function<Status(int64_t)>& work) : count_(count), work_(work) {}

  void TakePieces() {
    std::unique_lock lock(mutex_);
    while (next_ < count_ && error_.ok()) {
      const int64_t piece = next_++;
      lock.unlock();
      Status status = work_(piece);
      lock.lock();
      ++done_;
      if (!status.ok() && (error_.ok() || piece < failed_)) {
        error_ = std::move(status);
        failed_ = piece;
      }
    }
    changed_.notify_all();
  }

  void Report(Progress& progress) {
    constexpr auto kPause = std::chrono::milliseconds(100);
    std::unique_lock lock(mutex_);
    while (done_ < count_ && error_.ok()) {
      changed_.wait_for(lock, kPause);
      progress.Update(done_);
    }
  }

  Status TakeError() { return std::move(error_); }

 private:
  const int64_t count_;
  const std::function<Status(int64_t)>& work_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int64_t next_ = 0;
  int64_t done_ = 0;
  Status error_;
  int64_t failed_ = 0;  // piece that error_ is of
};

}  // namespace

Status ForAll(int64_t count, const ParallelOptions& options,
              const std::function<Status(int64_t)>& work) {
  const int64_t wanted = options.threads_at_most > 0
                             ? options.threads_at_most
                             : std::max<int64_t>(1, std::thread::hardware_concurrency());
  Work shared(count, work);
  {
    std::vector<std::jthread> threads;
    for (int64_t i = 0; i < std::min(count, wanted); ++i)
      threads.push_back(
          StartThread(fmt::format("{}-{}", options.name, i), [&shared] { shared.TakePieces(); }));
    Progress progress(options.name, count, {.unit = options.unit});
    shared.Report(progress);
  }
  return shared.TakeError();
}

}  // namespace ulmus::data
