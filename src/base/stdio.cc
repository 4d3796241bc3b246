#include "base/stdio.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ulmus {

void ReserveStandardStreams() {
  // open() returns the lowest free number; the first above 2 ends the search.
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= 2);
  if (fd > 2) close(fd);
}

Status FlushStandardOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return ResourceExhaustedError(
      "standard output: cannot write: {}; the result is incomplete, redirect it elsewhere",
      std::strerror(errno));
}

}  // namespace ulmus
