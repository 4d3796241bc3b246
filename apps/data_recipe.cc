#include "apps/data_recipe.h"

#include <algorithm>
#include <map>
#include <variant>

#include "base/recipe_toml.h"
#include "train/run_config.h"

namespace ulmus::apps {
namespace {

// line -> the top key of what begins there last.
using Owners = std::map<int64_t, std::string>;

void AddOwners(const TomlNode& node, const std::string& owner, Owners& owners) {
  owners[node.line] = owner;
  const auto* children = std::get_if<TomlArray>(&node.value);
  if (const auto* table = std::get_if<TomlTable>(&node.value)) children = &table->nodes;
  if (children == nullptr) return;
  for (const TomlNode& child : *children) AddOwners(child, owner, owners);
}

// The recipe without the tables of other parts, which are not this command's to check. Lines stay
// where they are.
std::string OnlyData(std::string_view text, const TomlTable& top) {
  Owners owners;
  for (const TomlNode& node : top.nodes) AddOwners(node, node.key, owners);
  std::string kept;
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    const auto next = owners.upper_bound(line);
    const bool keep = next != owners.begin() && std::prev(next)->second == "data";
    kept += keep ? text.substr(0, end) : "\n";
    text.remove_prefix(end);
  }
  return kept;
}

}  // namespace

bool IsRecipe(std::string_view text) { return train::IsPreset(text) || text.ends_with(".toml"); }

Result<data::DataConfig> ReadDataConfig(const std::string& recipe,
                                        const std::vector<std::string>& set) {
  const Result<Recipe> run = train::ResolveRun(recipe, set);
  if (run.ok()) return data::DataSchema().Read(*run);
  if (train::IsPreset(recipe)) return run.status();
  RecipeSource file = TRY(ReadRecipeFile(recipe));
  const auto top = ParseToml(file.text);
  const auto is_preset = [](const TomlNode& node) { return node.key == "preset"; };
  if (!top || std::ranges::any_of(top->nodes, is_preset)) return run.status();
  file.text = OnlyData(file.text, *top);
  Schema schema;
  data::DataSchema().AddTo(schema);
  const Recipe only_data = TRY(Recipe::Resolve(schema, {.file = file, .flags = set}));
  return data::DataSchema().Read(only_data);
}

}  // namespace ulmus::apps
