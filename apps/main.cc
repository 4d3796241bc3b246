// The program `ulmus`. Each subcommand lives in its own file of this folder.
#include <CLI/CLI.hpp>
#include <csignal>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "apps/commands.h"
#include "base/edit_distance.h"
#include "base/status.h"
#include "base/stdio.h"

namespace ulmus {
namespace {

// CLI11 reports a misspelt subcommand as a missing one. Empty if the first word is a subcommand.
std::string UnknownSubcommand(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return "";
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == argv[1]) return "";
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  const std::optional<std::string> nearest = NearestKey(argv[1], names);
  return fmt::format("there is no subcommand '{}'{} `ulmus --help` lists those that exist", argv[1],
                     nearest ? fmt::format("; did you mean '{}'?", *nearest) : ";");
}

}  // namespace
}  // namespace ulmus

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
  if (const std::string mistake = UnknownSubcommand(app, argc, argv); !mistake.empty())
    return apps::Fail(InvalidArgumentError("{}", mistake));
  // CLI11 reports by exception; every mistake on the command line is one exit code.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kExitUsage;
    run = [] { return kExitOk; };
  }
  // A limit on file sizes is an error of write(), as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  // fmt reports a standard output that cannot be written by exception.
  int code = kExitFailure;
  try {
    code = run();
  } catch (const std::system_error& error) {
    return apps::Fail(Status(StatusCode::kResourceExhausted,
                             fmt::format("standard output: cannot write: {}", error.what())));
  }
  const Status written = FlushStandardOutput();
  return written.ok() ? code : apps::Fail(written);
}
