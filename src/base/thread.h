// Threads with names, which debuggers, profilers and `top -H` show.
#pragma once

#include <string>
#include <thread>
#include <utility>

namespace ulmus {

// Names the calling thread. Linux keeps 15 bytes; the rest is cut.
void SetThreadName(const std::string& name);

// Runs `work()` on a thread called `name`; joined when the handle dies. Close the queues it waits
// on before that.
template <class Work>
std::jthread StartThread(std::string name, Work work) {
  return std::jthread([name = std::move(name), work = std::move(work)]() mutable {
    SetThreadName(name);
    work();
  });
}

}  // namespace ulmus
