// Running this program again as a child, with a time limit.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace ulmus::apps {

struct ChildResult {
  std::string output;      // what it wrote to stdout, at most 1 MiB
  int exit_code = 0;       // of a normal end
  int signal = 0;          // that killed it, else 0
  bool timed_out = false;  // killed by us
};

// Runs /proc/self/exe with `args` and waits up to `timeout_s`. Its stderr is ours unless `quiet`.
Result<ChildResult> RunSelf(const std::vector<std::string>& args, double timeout_s, bool quiet);

}  // namespace ulmus::apps
