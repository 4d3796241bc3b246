// A blocking queue of values between threads, with a fixed capacity: the slower side sets the pace.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"

namespace ulmus {

// Any number of threads may push and pop. After Close() nothing can be pushed; pops drain what is
// left, then end.
template <class T>
class BoundedQueue {
 public:
  using Duration = std::chrono::duration<double>;  // seconds

  explicit BoundedQueue(int64_t capacity) : capacity_(static_cast<size_t>(capacity)) {
    CHECK(capacity > 0, "queue of capacity {}", capacity);
  }

  // Waits for room. False if the queue is or gets closed; `value` is then dropped.
  bool Push(T value) {
    std::unique_lock lock(mutex_);
    Wait(lock, has_room_, push_wait_s_, [this] { return closed_ || items_.size() < capacity_; });
    return PushLocked(lock, value);
  }

  // Waits for room for at most `timeout`. On false (time out or closed) `value` is untouched.
  bool PushFor(T& value, Duration timeout) {
    std::unique_lock lock(mutex_);
    WaitFor(lock, has_room_, push_wait_s_, timeout,
            [this] { return closed_ || items_.size() < capacity_; });
    return PushLocked(lock, value);
  }

  // Waits for a value. nullopt once the queue is closed and empty: there will never be another.
  std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    Wait(lock, has_item_, pop_wait_s_, [this] { return closed_ || !items_.empty(); });
    return PopLocked(lock);
  }

  // Waits for a value for at most `timeout`; nullopt on time out, or closed and empty (ask
  // drained()).
  std::optional<T> PopFor(Duration timeout) {
    std::unique_lock lock(mutex_);
    WaitFor(lock, has_item_, pop_wait_s_, timeout, [this] { return closed_ || !items_.empty(); });
    return PopLocked(lock);
  }

  // Ends the stream and wakes everyone who waits. May be called more than once, from any thread.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    has_room_.notify_all();
    has_item_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }
  // Closed and empty.
  bool drained() const {
    std::lock_guard lock(mutex_);
    return closed_ && items_.empty();
  }
  int64_t size() const {
    std::lock_guard lock(mutex_);
    return static_cast<int64_t>(items_.size());
  }
  int64_t capacity() const { return static_cast<int64_t>(capacity_); }

  // Seconds that pushes and pops have waited, over all threads: which side is the bottleneck.
  double push_wait_s() const {
    std::lock_guard lock(mutex_);
    return push_wait_s_;
  }
  double pop_wait_s() const {
    std::lock_guard lock(mutex_);
    return pop_wait_s_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class Ready>
  void Wait(std::unique_lock<std::mutex>& lock, std::condition_variable& condition, double& wait_s,
            Ready ready) {
    if (ready()) return;  // no clock is read on the fast path
    const Clock::time_point start = Clock::now();
    condition.wait(lock, ready);
    wait_s += Duration(Clock::now() - start).count();
  }

  template <class Ready>
  void WaitFor(std::unique_lock<std::mutex>& lock, std::condition_variable& condition,
               double& wait_s, Duration timeout, Ready ready) {
    if (ready()) return;
    const Clock::time_point start = Clock::now();
    condition.wait_for(lock, timeout, ready);
    wait_s += Duration(Clock::now() - start).count();
  }

  bool PushLocked(std::unique_lock<std::mutex>& lock, T& value) {
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(value));
    lock.unlock();
    has_item_.notify_one();
    return true;
  }

  std::optional<T> PopLocked(std::unique_lock<std::mutex>& lock) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    lock.unlock();
    has_room_.notify_one();
    return value;
  }

  const size_t capacity_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable has_room_;
  std::condition_variable has_item_;
  std::deque<T> items_;
  bool closed_ = false;
  double push_wait_s_ = 0;
  double pop_wait_s_ = 0;
};

}  // namespace ulmus
