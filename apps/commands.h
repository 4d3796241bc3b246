// The table of subcommands. To add one: write apps/<name>.cc, declare its Add function here, list
// it in commands.cc.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"

namespace ulmus::apps {

// What a chosen subcommand does; returns the exit code (base/status.h).
using Run = std::function<int()>;

struct Command {
  // Adds the subcommand to `app` with its options and sets `run` when the user chooses it.
  void (*add)(CLI::App& app, Run& run);
};

std::span<const Command> Commands();

void AddCheck(CLI::App& app, Run& run);
void AddConvert(CLI::App& app, Run& run);
void AddData(CLI::App& app, Run& run);
void AddDevices(CLI::App& app, Run& run);
void AddTrain(CLI::App& app, Run& run);
void AddTokenize(CLI::App& app, Run& run);
void AddDevicesProbe(CLI::App& app, Run& run);  // hidden: a child of `devices`
void AddGenerate(CLI::App& app, Run& run);
void AddParity(CLI::App& app, Run& run);

// Prints "error: ..." and returns the exit code for the status.
int Fail(const Status& status);

}  // namespace ulmus::apps
