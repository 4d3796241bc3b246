#include "base/stdio.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/check.h"

namespace ulmus {
namespace {

TEST(StandardStreamsDeathTest, ClosedOnesAreReservedSoThatFilesGetHigherNumbers) {
  EXPECT_EXIT(
      {
        close(0);
        close(1);
        ReserveStandardStreams();
        const int fd = open("/dev/null", O_RDONLY);
        std::_Exit(fd > 2 ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

TEST(StandardStreamsDeathTest, AResultThatCannotBeWrittenIsAnError) {
  EXPECT_EXIT(
      {
        CHECK(std::freopen("/dev/full", "w", stdout) != nullptr);
        std::fputs("result", stdout);
        const Status status = FlushStandardOutput();
        std::fputs(status.message().c_str(), stderr);
        std::_Exit(ExitCodeFor(status));
      },
      testing::ExitedWithCode(kExitFailure), "standard output: cannot write");
}

}  // namespace
}  // namespace ulmus
