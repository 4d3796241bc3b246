// The program `ulmus`. Each subcommand lives in its own file of this folder.
#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "base/status.h"
#include "base/stdio.h"

int main(int argc, char** argv) {
  using namespace ulmus;
  ReserveStandardStreams();
  CLI::App app("Pre-trains OLMo-3-class language models, and proves that it did it right.",
               "ulmus");
  app.set_version_flag("--version", "ulmus " ULMUS_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 failure, 2 wrong command line or recipe, 3 damaged data, 4 a "
      "comparison did not hold,\n"
      "75 stopped by a signal after a complete save.\n\nExample: ulmus devices --json");
  apps::Run run;
  for (const apps::Command& command : apps::Commands()) command.add(app, run);
  // CLI11 reports by exception; every mistake on the command line is one exit code.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kExitUsage;
    run = [] { return kExitOk; };
  }
  const int code = run();
  const Status written = FlushStandardOutput();
  return written.ok() ? code : apps::Fail(written);
}
