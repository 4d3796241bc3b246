#include "apps/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace ulmus::apps {
namespace {

constexpr size_t kMaxOutputBytes = 1 << 20;

using Clock = std::chrono::steady_clock;

// Only async-signal-safe calls between fork and exec.
[[noreturn]] void BecomeChild(int output, bool quiet, char* const* argv) {
  dup2(output, STDOUT_FILENO);
  if (quiet) {
    const int null = open("/dev/null", O_WRONLY);
    if (null >= 0) dup2(null, STDERR_FILENO);
  }
  execv("/proc/self/exe", argv);
  _exit(127);
}

// Reads until the end of the output or the deadline; true if it ended.
bool ReadUntil(int fd, Clock::time_point deadline, std::string& output) {
  char block[4096];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{fd, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, 1000)));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const ssize_t n = read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    output.append(block, std::min(static_cast<size_t>(n), kMaxOutputBytes - output.size()));
  }
}

// Closing its output is not ending: a child may hang in its own shutdown.
bool WaitUntil(pid_t pid, Clock::time_point deadline, int& status) {
  while (true) {
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) return true;
    if (done < 0 && errno != EINTR) return true;
    if (Clock::now() >= deadline) return false;
    usleep(1000);
  }
}

}  // namespace

Result<ChildResult> RunSelf(const std::vector<std::string>& args, double timeout_s, bool quiet) {
  std::vector<std::string> words = {"ulmus"};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return UnavailableError("pipe: {}", std::strerror(errno));
  const pid_t pid = fork();
  if (pid < 0) {
    close(fds[0]);
    close(fds[1]);
    return UnavailableError("fork: {}", std::strerror(errno));
  }
  if (pid == 0) BecomeChild(fds[1], quiet, argv.data());
  close(fds[1]);

  const auto deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
  ChildResult result;
  int status = 0;
  result.timed_out =
      !ReadUntil(fds[0], deadline, result.output) || !WaitUntil(pid, deadline, status);
  close(fds[0]);
  if (result.timed_out) {
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return result;
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace ulmus::apps
