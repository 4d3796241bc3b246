// Recipes by name: files and what the build embedded of presets/.
#include <algorithm>

#include "base/edit_distance.h"
#include "train/run_config_tables.h"

namespace ulmus::train {

bool IsPreset(std::string_view name) {
  return std::ranges::find(Presets(), name, &RecipeSource::name) != Presets().end();
}

Status NoSuchRecipe(std::string_view name, const Status& status) {
  if (status.code() != StatusCode::kInvalidArgument) return status;
  std::vector<std::string> names;
  for (const RecipeSource& preset : Presets()) names.push_back(preset.name);
  const std::optional<std::string> nearest = NearestKey(name, names);
  return InvalidArgumentError(
      "{}; presets are {}{}", status.message(), fmt::join(names, ", "),
      nearest ? fmt::format("; did you mean `{}`?", *nearest) : std::string());
}

}  // namespace ulmus::train
