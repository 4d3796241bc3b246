// Subcommands of `ulmus data`. To add one: write apps/data_<name>.cc, declare its Add function
// here, list it in data.cc.
#pragma once

#include "apps/commands.h"

namespace ulmus::apps {

void AddDataAudit(CLI::App& app, Run& run);
void AddDataIndex(CLI::App& app, Run& run);
void AddDataMix(CLI::App& app, Run& run);
void AddDataShow(CLI::App& app, Run& run);
void AddDataStats(CLI::App& app, Run& run);

}  // namespace ulmus::apps
