// The [data] table of a recipe, for the subcommands of `ulmus data` that read one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/config.h"

namespace ulmus::apps {

// True for the name of a preset and for what ends in .toml.
bool IsRecipe(std::string_view text);

// [data] of a run's recipe or preset, or of a recipe with little else: without a preset, tables
// of other parts are passed over where they make no run. `set` is key=value over the recipe's.
Result<data::DataConfig> ReadDataConfig(const std::string& recipe,
                                        const std::vector<std::string>& set);

}  // namespace ulmus::apps
