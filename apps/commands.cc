#include "apps/commands.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/escape_controls.h"

namespace ulmus::apps {
namespace {

constexpr Command kCommands[] = {
    {AddCheck}, {AddConvert}, {AddDevices},  {AddDevicesProbe}, {AddTokenize},
    {AddTrain}, {AddData},    {AddGenerate}, {AddParity},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

int Fail(const Status& status) {
  fmt::print(stderr, "error: {}\n", EscapeControls(status.message()));
  return ExitCodeFor(status);
}

}  // namespace ulmus::apps
