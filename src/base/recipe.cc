#include "base/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.h"
#include "base/recipe_toml.h"

namespace ulmus {
namespace {

constexpr size_t kMaxShownFlag = 200;

// Origins may hold any bytes; comments must stay on their line and be UTF-8.
std::string CommentText(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string_view TableOf(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
}

std::string_view LeafOf(std::string_view key) { return key.substr(key.rfind('.') + 1); }

bool IsWithin(std::string_view key, std::string_view table) {
  return key.starts_with(table) &&
         (key.size() == table.size() || key[table.size()] == '.' || key[table.size()] == '[');
}

// One "key = value" line with its comments.
std::string Line(std::string_view name, const Field& field, const RecipeEntry& entry,
                 RecipeComments comments) {
  std::string text;
  if (comments.help && !field.options.help.empty())
    text += fmt::format("# {}\n", CommentText(field.options.help));
  text +=
      fmt::format("{} = {}", name, field.type == FieldType::kTables ? "[]" : ToToml(entry.value));
  if (comments.origins) text += fmt::format("  # {}", CommentText(entry.origin.ToString()));
  return text + "\n";
}

}  // namespace

std::string Origin::ToString() const {
  const std::string place = line > 0 ? fmt::format(":{}:{}", line, column) : "";
  switch (kind) {
    case Kind::kDefault:
      return "default";
    case Kind::kPreset:
      return fmt::format("preset {}{}", name, place);
    case Kind::kFile:
      return fmt::format("file {}{}", name, place);
    case Kind::kFlag:
      return fmt::format("flag --set {}", name.size() <= kMaxShownFlag
                                              ? name
                                              : name.substr(0, kMaxShownFlag) + "...");
  }
  return "?";
}

Result<RecipeSource> ReadRecipeFile(const Path& path) {
  Result<std::string> text = ReadFile(path, kMaxTomlBytes);
  if (text.ok()) return RecipeSource{path.string(), *std::move(text)};
  const StatusCode code = text.error().code();
  const bool wrong_name = code == StatusCode::kNotFound || code == StatusCode::kOutOfRange ||
                          code == StatusCode::kFailedPrecondition;
  return wrong_name ? Status(StatusCode::kInvalidArgument, text.error().message()) : text.error();
}

const RecipeEntry& Recipe::Entry(std::string_view key) const {
  const auto found = entries_.find(key);
  CHECK(found != entries_.end(), "recipe has no key `{}`", key);
  return found->second;
}

std::string Recipe::ToToml(RecipeComments comments) const {
  std::string text;
  if (!locked_.empty()) {
    const std::vector<std::string> names(locked_.begin(), locked_.end());
    text += fmt::format("locked = {}\n", ulmus::ToToml(names));
  }
  // Keys of one table stand together, tables in order of declaration; keys outside tables must come
  // first.
  std::vector<std::string_view> tables = {""};
  for (const Field& field : schema_.fields()) {
    const std::string_view table = TableOf(field.key);
    if (std::find(tables.begin(), tables.end(), table) == tables.end()) tables.push_back(table);
  }
  std::vector<const Field*> arrays;
  for (std::string_view table : tables) {
    std::string body;
    for (const Field& field : schema_.fields()) {
      if (TableOf(field.key) != table) continue;
      if (field.type == FieldType::kTables && NumTables(field.key) > 0)
        arrays.push_back(&field);
      else
        body += Line(LeafOf(field.key), field, Entry(field.key), comments);
    }
    if (body.empty()) continue;
    if (!table.empty()) text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", table);
    text += body;
  }
  for (const Field* array : arrays) {
    for (int64_t i = 0; i < NumTables(array->key); ++i) {
      text += fmt::format("{}[[{}]]\n", text.empty() ? "" : "\n", array->key);
      for (const Field& field : array->item->fields())
        text += Line(field.key, field, Entry(fmt::format("{}[{}].{}", array->key, i, field.key)),
                     comments);
    }
  }
  return text;
}

std::string Recipe::ToJson() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& [key, entry] : entries_) {
    nlohmann::ordered_json value;
    std::visit([&value](const auto& v) { value = v; }, entry.value);
    rows.push_back(
        {{"key", key}, {"value", std::move(value)}, {"origin", entry.origin.ToString()}});
  }
  return rows.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string Recipe::Hash(std::span<const std::string_view> tables) const {
  Sha256 hash;
  for (const auto& [key, entry] : entries_) {  // sorted
    const bool wanted = tables.empty() || std::any_of(tables.begin(), tables.end(),
                                                      [&k = key](std::string_view table) {
                                                        return IsWithin(k, table);
                                                      });
    if (wanted) hash.Update(fmt::format("{} = {}\n", key, ulmus::ToToml(entry.value)));
  }
  return hash.hex();
}

std::vector<RecipeDifference> Differences(const Recipe& before, const Recipe& after) {
  std::vector<RecipeDifference> differences;
  for (const auto& [key, entry] : before.entries()) {
    const auto other = after.entries().find(key);
    if (other == after.entries().end())
      differences.push_back({key, ToToml(entry.value), "(none)", entry.origin});
    else if (ToToml(other->second.value) != ToToml(entry.value))
      differences.push_back(
          {key, ToToml(entry.value), ToToml(other->second.value), other->second.origin});
  }
  for (const auto& [key, entry] : after.entries()) {
    if (!before.entries().contains(key))
      differences.push_back({key, "(none)", ToToml(entry.value), entry.origin});
  }
  return differences;
}

}  // namespace ulmus
