// Independent pieces of work on threads of this process, with progress.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace ulmus::data {

struct ParallelOptions {
  std::string name;             // of the threads and the progress line
  std::string unit = "items";   // of the progress line
  int64_t threads_at_most = 0;  // 0: one per core
};

// Calls work(0) .. work(count - 1), each once, from several threads. After a failure no further
// piece is begun; of those that failed, the error of the lowest is returned.
Status ForAll(int64_t count, const ParallelOptions& options,
              const std::function<Status(int64_t)>& work);

}  // namespace ulmus::data
