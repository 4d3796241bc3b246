#include "kernels/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/testing/thread_workers.h"

namespace ulmus::kernels {
namespace {

TEST(ParallelFor, RunsEveryIndexOnce) {
  for (const int64_t threads : {1, 2, 7}) {
    ThreadWorkers workers(threads);
    for (const int64_t count : {0, 1, 2, 100, 10000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      ParallelFor(workers, count, [&](int64_t i) { ++calls[static_cast<size_t>(i)]; });
      for (const auto& n : calls) ASSERT_EQ(n, 1) << threads << " threads, " << count << " indices";
    }
  }
}

// A pool whose threads are all taken: tasks wait in its queue until it dies.
class BusyWorkers final : public Workers {
 public:
  ~BusyWorkers() override {
    for (const auto& task : tasks_) task();
  }
  int64_t num_threads() const override { return 8; }
  void Schedule(std::function<void()> task) noexcept override { tasks_.push_back(std::move(task)); }

 private:
  std::vector<std::function<void()>> tasks_;
};

TEST(ParallelFor, NeedsNoFreeThreadAndSurvivesLateTasks) {
  int64_t sum = 0;
  {
    BusyWorkers workers;
    ParallelFor(workers, 100, [&](int64_t i) { sum += i; });
    EXPECT_EQ(sum, 4950);
  }  // the tasks start now, when the body is gone
  EXPECT_EQ(sum, 4950);
}

TEST(ParallelFor, NestsAndServesSeveralCallersOnOnePool) {
  ThreadWorkers workers(3);
  std::atomic<int64_t> calls = 0;
  {
    std::vector<std::jthread> callers;
    for (int caller = 0; caller < 8; ++caller) {
      callers.emplace_back([&] {
        ParallelFor(workers, 20,
                    [&](int64_t) { ParallelFor(workers, 10, [&](int64_t) { ++calls; }); });
      });
    }
  }
  EXPECT_EQ(calls, 8 * 20 * 10);
}

TEST(ParallelFor, UsesTheOtherThreads) {
  ThreadWorkers workers(2);
  std::atomic<int> inside = 0;
  ParallelFor(workers, 2, [&](int64_t) {
    ++inside;
    inside.notify_all();
    for (int seen; (seen = inside) < 2;)
      inside.wait(seen);  // ends only if two threads are here at once
  });
  EXPECT_EQ(inside, 2);
}

}  // namespace
}  // namespace ulmus::kernels
