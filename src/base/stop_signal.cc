#include "base/stop_signal.h"

#include <csignal>

#include <array>
#include <atomic>
#include <cerrno>
#include <optional>

namespace ulmus {
namespace {

constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP};

// What each of them did before; empty while none is caught.
std::optional<std::array<struct sigaction, kStopSignals.size()>> g_before;

std::atomic<int> g_noted_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait for a lock");

void NoteSignal(int signal) {
  int none = 0;
  if (g_noted_signal.compare_exchange_strong(none, signal) || signal == SIGHUP) return;
  // Delivered with its default action, death, when this handler returns: a parent sees which one.
  const int saved_errno = errno;
  std::signal(signal, SIG_DFL);
  raise(signal);
  errno = saved_errno;
}

}  // namespace

void CatchStopSignals() {
  if (g_before) return;
  g_before.emplace();
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  action.sa_flags = SA_RESTART;  // reads and writes under way go on: the flag is all that changes
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    struct sigaction& before = (*g_before)[i];
    sigaction(kStopSignals[i], nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(kStopSignals[i], &action, nullptr);
  }
}

void RestoreStopSignals() {
  if (!g_before) return;
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    sigaction(kStopSignals[i], &(*g_before)[i], nullptr);
  }
  g_before.reset();
  g_noted_signal = 0;
}

bool StopRequested() { return g_noted_signal.load(std::memory_order_relaxed) != 0; }

std::string StopSignalName() {
  switch (g_noted_signal.load()) {
    case 0:
      return "";
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "SIGHUP";
  }
}

}  // namespace ulmus
