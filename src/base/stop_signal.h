// Being asked to stop: the first SIGINT, SIGTERM or SIGHUP is noted for long work to see between
// two of its steps, where it can end in order; a further SIGINT or SIGTERM ends the process at
// once, as if it had never been caught. Not for waking a thread that waits.
#pragma once

#include <string>

namespace ulmus {

// From now on signals are noted. One that the process was started to ignore (nohup, `&` in a
// script) stays ignored. SIGHUP never counts as the further one: a terminal that closes sends it
// twice.
void CatchStopSignals();

// Signals do again what they did before CatchStopSignals, and none counts as noted.
void RestoreStopSignals();

// True once a signal was noted. Any thread. A command that then saved everything ends with
// kExitRequeue; one that leaves nothing behind returns a kCancelled error.
bool StopRequested();

// "SIGTERM" and so on: which one was noted first; empty if none.
std::string StopSignalName();

}  // namespace ulmus
