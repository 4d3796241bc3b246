// The program `ulmus` as a user runs it: through a shell, from outside. For tests of subcommands.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace ulmus::apps {

struct Output {
  std::string text;  // standard output and standard error, as they came
  int exit_code = -1;
};

// A command of the shell. exit_code is -1 if a signal ended it.
inline Output RunShell(const std::string& command) {
  Output output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> block{};
  for (size_t n; (n = fread(block.data(), 1, block.size(), pipe)) > 0;)
    output.text.append(block.data(), n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) output.exit_code = WEXITSTATUS(status);
  return output;
}

inline Output RunUlmus(const std::string& arguments) {
  return RunShell(std::string(ULMUS_PROGRAM) + " " + arguments);
}

// Its standard output alone: of --json, one JSON value whatever is logged.
inline Output RunUlmusForJson(const std::string& arguments) {
  return RunShell("( " + std::string(ULMUS_PROGRAM) + " " + arguments + " 2>/dev/null )");
}

}  // namespace ulmus::apps
