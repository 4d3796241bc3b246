// The three standard streams of a program, made safe at both ends of main.
#pragma once

#include "base/status.h"

namespace ulmus {

// Opens /dev/null on those of descriptors 0-2 that are closed, so that no file of the program gets
// a number that something else writes to. First thing in main.
void ReserveStandardStreams();

// Flushes standard output. The error says that the result was not written (disk full, closed pipe):
// a program that prints its result must not end as if it had. Last thing in main.
Status FlushStandardOutput();

}  // namespace ulmus
