#include "kernels/parallel.h"

#include <algorithm>
#include <atomic>
#include <memory>

namespace ulmus::kernels {
namespace {

// Outlives the call: a task may start when everything is done. It then finds no index left and
// touches nothing else.
struct Shared {
  const std::function<void(int64_t)>& body;
  const int64_t count;
  std::atomic<int64_t> next = 0;
  std::atomic<int64_t> done = 0;
};

void Drain(Shared& shared) noexcept {
  for (int64_t i; (i = shared.next.fetch_add(1, std::memory_order_relaxed)) < shared.count;) {
    shared.body(i);
    if (shared.done.fetch_add(1, std::memory_order_acq_rel) + 1 == shared.count)
      shared.done.notify_all();
  }
}

}  // namespace

void ParallelFor(Workers& workers, int64_t count, const std::function<void(int64_t)>& body) {
  const int64_t num_helpers = std::min(count, workers.num_threads()) - 1;
  if (num_helpers <= 0) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  const auto shared = std::make_shared<Shared>(body, count);
  for (int64_t i = 0; i < num_helpers; ++i) {
    workers.Schedule([shared] { Drain(*shared); });
  }
  Drain(*shared);
  for (int64_t done; (done = shared->done.load(std::memory_order_acquire)) < count;)
    shared->done.wait(done, std::memory_order_acquire);
}

}  // namespace ulmus::kernels
