// Work shared between the calling thread and the threads of a pool.
#pragma once

#include <cstdint>
#include <functional>

namespace ulmus::kernels {

// Threads that may help. Any thread may call it.
class Workers {
 public:
  virtual ~Workers() = default;
  virtual int64_t num_threads() const = 0;
  // Runs `task` some time, possibly after the work it was meant for is done.
  virtual void Schedule(std::function<void()> task) noexcept = 0;
};

// No help: the caller does everything.
class CallerOnly final : public Workers {
 public:
  int64_t num_threads() const override { return 1; }
  void Schedule(std::function<void()> task) noexcept override { task(); }
};

// Runs body(0) ... body(count - 1), in any order and on several threads, and returns when all have
// run. The caller takes indices itself until none is left, so it only ever waits for calls that are
// already running: a pool whose threads are all busy, or all inside ParallelFor, is no deadlock.
// `body` must not throw.
void ParallelFor(Workers& workers, int64_t count, const std::function<void(int64_t index)>& body);

}  // namespace ulmus::kernels
