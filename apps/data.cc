// `ulmus data`: what token files hold, and the proof that every instance is used once.
#include "apps/data_commands.h"

namespace ulmus::apps {
namespace {

constexpr Command kCommands[] = {
    {AddDataAudit}, {AddDataIndex}, {AddDataMix}, {AddDataShow}, {AddDataStats},
};

}  // namespace

void AddData(CLI::App& app, Run& run) {
  CLI::App* data = app.add_subcommand("data", "Look at, count and index token files");
  data->require_subcommand(1);
  data->footer("Example: ulmus data stats corpus.manifest.json");
  for (const Command& command : kCommands) command.add(*data, run);
}

}  // namespace ulmus::apps
