// A small thread pool for tests and benchmarks of kernels outside a program.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/parallel.h"

namespace ulmus::kernels {

class ThreadWorkers final : public Workers {
 public:
  // The caller counts as one of `num_threads`.
  explicit ThreadWorkers(int64_t num_threads) : num_threads_(num_threads) {
    for (int64_t i = 1; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~ThreadWorkers() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  int64_t num_threads() const override { return num_threads_; }
  void Schedule(std::function<void()> task) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Work() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  const int64_t num_threads_;
  std::mutex mutex_;  // guards tasks_ and closed_
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool closed_ = false;
  std::vector<std::jthread> threads_;  // last: joined while the rest still lives
};

}  // namespace ulmus::kernels
