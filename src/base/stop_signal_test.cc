#include "base/stop_signal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <vector>

namespace ulmus {
namespace {

// How a child process ends that runs `body`: an exit code, or minus the signal that killed it.
int EndOfChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// The child sends itself `signals`; 10 if none was noted, 75 otherwise.
int EndAfter(const std::vector<int>& signals) {
  return EndOfChild([&] {
    CatchStopSignals();
    for (const int signal : signals) raise(signal);
    return StopRequested() ? 75 : 10;
  });
}

TEST(StopSignal, FirstIsNotedAndTheProcessGoesOn) {
  EXPECT_EQ(EndAfter({}), 10);
  EXPECT_EQ(EndAfter({SIGINT}), 75);
  EXPECT_EQ(EndAfter({SIGTERM}), 75);
  EXPECT_EQ(EndAfter({SIGHUP}), 75);
}

TEST(StopSignal, SecondEndsTheProcessAtOnce) {
  EXPECT_EQ(EndAfter({SIGINT, SIGINT}), -SIGINT);
  EXPECT_EQ(EndAfter({SIGTERM, SIGTERM}), -SIGTERM);
  EXPECT_EQ(EndAfter({SIGTERM, SIGINT}), -SIGINT);
  EXPECT_EQ(EndAfter({SIGHUP, SIGTERM}), -SIGTERM);
}

// A closing terminal: the kernel sends one, the shell another.
TEST(StopSignal, HangUpIsNeverTheSecond) {
  EXPECT_EQ(EndAfter({SIGHUP, SIGHUP}), 75);
  EXPECT_EQ(EndAfter({SIGTERM, SIGHUP}), 75);
}

TEST(StopSignal, IgnoredOnesStayIgnored) {
  const auto end = [](int ignored, int sent) {
    return EndOfChild([=] {
      std::signal(ignored, SIG_IGN);
      CatchStopSignals();
      raise(sent);
      raise(sent);
      return StopRequested() ? 75 : 10;
    });
  };
  EXPECT_EQ(end(SIGHUP, SIGHUP), 10);  // nohup
  EXPECT_EQ(end(SIGINT, SIGINT), 10);  // a background job of a script
  EXPECT_EQ(end(SIGINT, SIGTERM), -SIGTERM);
}

TEST(StopSignal, RestoredOnesDoWhatTheyDidBefore) {
  EXPECT_EQ(EndOfChild([] {
              CatchStopSignals();
              raise(SIGTERM);
              RestoreStopSignals();
              if (StopRequested()) return 1;
              raise(SIGTERM);
              return 2;
            }),
            -SIGTERM);
  EXPECT_EQ(EndOfChild([] {
              CatchStopSignals();
              CatchStopSignals();  // the second call must not take our handler for the one before
              RestoreStopSignals();
              CatchStopSignals();
              raise(SIGTERM);
              return StopRequested() ? 75 : 10;
            }),
            75);
}

// A write under way when the signal comes is not cut short: only the flag changes.
TEST(StopSignal, WaitingCallsGoOn) {
  EXPECT_EQ(EndOfChild([] {
              CatchStopSignals();
              int ends[2];
              if (pipe(ends) != 0) return 1;
              const pid_t self = getpid();
              const pid_t writer = fork();
              if (writer == 0) {
                usleep(50'000);
                kill(self, SIGTERM);
                usleep(50'000);
                _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
              }
              char byte = 0;
              const ssize_t got = read(ends[0], &byte, 1);
              waitpid(writer, nullptr, 0);
              return got == 1 && StopRequested() ? 75 : 10;
            }),
            75);
}

TEST(StopSignal, NameIsThatOfTheFirst) {
  EXPECT_EQ(StopSignalName(), "");
  EXPECT_EQ(EndOfChild([] {
              CatchStopSignals();
              raise(SIGTERM);
              raise(SIGHUP);
              return StopSignalName() == "SIGTERM" ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace ulmus
