// From texts and flags to one value per field: reading, layering, locks and all errors of a recipe
// (base/recipe.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/edit_distance.h"
#include "base/recipe.h"
#include "base/recipe_toml.h"

namespace ulmus {
namespace {

constexpr size_t kMaxErrors = 100;  // more help nobody, and each costs a search for the nearest key
constexpr size_t kMaxPresetChain = 8;
constexpr int64_t kMaxExactFloat = int64_t{1} << 53;
constexpr std::string_view kNoTable = "";

using Entries = std::map<std::string, RecipeEntry>;

struct Layer {
  Origin origin;  // without a position
  TomlTable table;
};

std::string Join(std::string_view table, std::string_view key) {
  return table.empty() ? std::string(key) : fmt::format("{}.{}", table, key);
}

std::string_view LeafOf(std::string_view key) { return key.substr(key.rfind('.') + 1); }

const TomlNode* FindNode(const TomlTable& table, std::string_view key) {
  for (const TomlNode& node : table.nodes) {
    if (node.key == key) return &node;
  }
  return nullptr;
}

bool IsReserved(std::string_view key) {
  return key == "preset" || key == "locked" || key == "allow_override";
}

// What to do about a value of the wrong type.
std::string TypeRemedy(FieldType wanted, const TomlNode& found) {
  const bool number = wanted == FieldType::kInt || wanted == FieldType::kFloat;
  if (std::holds_alternative<std::string>(found.value)) {
    if (number || wanted == FieldType::kBool) return "remove the quotes";
    if (wanted != FieldType::kString) return "put it in brackets: [ ]";
  }
  if (const double* value = std::get_if<double>(&found.value);
      value != nullptr && wanted == FieldType::kInt) {
    if (std::trunc(*value) == *value && std::fabs(*value) < 1e15)
      return fmt::format("write {}", static_cast<int64_t>(*value));
    return "write a whole number";
  }
  if (wanted == FieldType::kString) return "put it in quotes";
  if (wanted == FieldType::kBool) return "write true or false";
  if (wanted == FieldType::kTables) return "write [[...]] tables";
  return "correct the value";
}

}  // namespace

class RecipeResolver {
 public:
  RecipeResolver(const Schema& schema, const RecipeInput& input) : schema_(schema), input_(input) {}

  void Run(Recipe& recipe) {
    ReadSource(Origin::Kind::kFile, input_.file, {});
    ReadFlags();
    if (!errors_.empty())
      return;  // a text that cannot be read would make every other message doubtful
    for (const Layer& layer : layers_) ReadAllowed(layer);
    for (const Layer& layer : layers_) Apply(layer);
    Complete();
    recipe.schema_ = schema_;
    for (auto& [field, entries] : values_) recipe.entries_.insert(entries.begin(), entries.end());
    for (const auto& [key, origin] : locks_) recipe.locked_.insert(key);
  }

  std::vector<RecipeError>& errors() { return errors_; }
  size_t num_dropped() const { return num_dropped_; }

 private:
  // --- Errors

  bool Full() const { return errors_.size() >= kMaxErrors; }

  void AddError(std::string key, Origin origin, std::string message) {
    if (Full())
      ++num_dropped_;
    else
      errors_.push_back({std::move(key), std::move(message), std::move(origin)});
  }

  static Origin At(Origin origin, const TomlNode& node) {
    if (origin.kind == Origin::Kind::kFlag) return origin;
    origin.line = node.line;
    origin.column = node.column;
    return origin;
  }

  // "; did you mean `x`?" for a name below `table` of `schema`, or a pointer to the list of keys.
  std::string Suggest(const Schema& schema, const std::string& key) const {
    if (Full()) return "";
    // A key in the wrong table keeps its last word: lr_peak for optim.lr_peak.
    const std::string_view leaf = LeafOf(key);
    std::vector<std::string> same_leaf;
    for (const Field& field : schema.fields()) {
      if (LeafOf(field.key) == leaf) same_leaf.push_back(field.key);
    }
    if (same_leaf.size() == 1) return fmt::format("did you mean `{}`?", same_leaf[0]);
    if (const std::optional<std::string> nearest = NearestKey(key, schema.names()))
      return fmt::format("did you mean `{}`?", *nearest);
    return "no key has a similar name; remove it";
  }

  // Shortened for messages: a key may be a megabyte long.
  static std::string Shown(std::string_view key) {
    return key.size() <= 120 ? std::string(key) : fmt::format("{}...", key.substr(0, 120));
  }

  // --- Reading

  void ReadSource(Origin::Kind kind, const RecipeSource& source, std::vector<std::string> chain) {
    Origin origin{.kind = kind, .name = source.name};
    tl::expected<TomlTable, TomlError> parsed = ParseToml(source.text);
    if (!parsed) {
      origin.line = parsed.error().line;
      origin.column = parsed.error().column;
      AddError("", origin, fmt::format("{}; correct the TOML here", parsed.error().message));
      return;
    }
    // What a source stands upon comes first: it is overridden.
    if (const TomlNode* preset = FindNode(*parsed, "preset"))
      ReadPreset(*preset, At(origin, *preset), std::move(chain));
    layers_.push_back({std::move(origin), *std::move(parsed)});
  }

  void ReadPreset(const TomlNode& node, const Origin& origin, std::vector<std::string> chain) {
    const std::string* name = std::get_if<std::string>(&node.value);
    if (name == nullptr)
      return AddError(
          "preset", origin,
          fmt::format("`preset` wants the name of a preset, found {}", DescribeNode(node)));
    std::vector<std::string> names;
    for (const RecipeSource& preset : input_.presets) {
      names.push_back(preset.name);
      if (preset.name != *name) continue;
      chain.push_back(*name);
      if (chain.size() > kMaxPresetChain || std::count(chain.begin(), chain.end(), *name) > 1) {
        return AddError(
            "preset", origin,
            fmt::format("presets stand upon each other in a circle: {}", fmt::join(chain, " -> ")));
      }
      return ReadSource(Origin::Kind::kPreset, preset, std::move(chain));
    }
    const std::optional<std::string> nearest = NearestKey(*name, names);
    AddError("preset", origin,
             fmt::format(
                 "preset {} does not exist; {}", TomlString(Shown(*name)),
                 nearest ? fmt::format("did you mean \"{}\"?", *nearest)
                         : fmt::format("there {}: {}", names.size() == 1 ? "is" : "are",
                                       names.empty() ? "none"
                                                     : fmt::format("{}", fmt::join(names, ", ")))));
  }

  void ReadFlags() {
    std::map<std::string, std::string> given;
    for (const std::string& flag : input_.flags) {
      const Origin origin{.kind = Origin::Kind::kFlag, .name = flag};
      const size_t equals = flag.find('=');
      if (equals == std::string::npos || equals == 0) {
        AddError("", origin, "wants key=value");
        continue;
      }
      const std::string key = flag.substr(0, equals);
      if (const auto [earlier, fresh] = given.emplace(key, flag); !fresh) {
        AddError(key, origin,
                 fmt::format("`{}` is given by another flag too (--set {}); keep one", Shown(key),
                             Shown(earlier->second)));
        continue;
      }
      ReadFlag(key, flag.substr(equals + 1), origin);
    }
  }

  void ReadFlag(const std::string& key, const std::string& text, const Origin& origin) {
    const Field* field = schema_.Find(key);
    const bool allow = key == "allow_override";
    if (field == nullptr && !allow) {
      const std::string remedy = IsReserved(key)        ? "write it in the file"
                                 : schema_.IsTable(key) ? "it is a table: set the keys in it"
                                                        : Suggest(schema_, key);
      return AddError(key, origin,
                      fmt::format("`{}` is not a key that a flag can set; {}", Shown(key), remedy));
    }
    if (text.empty())
      return AddError(
          key, origin,
          fmt::format("`{}` has no value; write {}=VALUE, or \"\" for an empty string", key, key));
    const auto blank = [](char c) { return static_cast<unsigned char>(c) <= ' '; };
    if (blank(text.front()) || blank(text.back())) {
      return AddError(
          key, origin,
          fmt::format("`{}`: space around the value; remove it (or quote it, for a string)", key));
    }
    // The shell takes quotes away, so a bare word is a string where one is wanted.
    const bool wants_text = allow || field->type == FieldType::kString;
    const bool bare = wants_text && text.front() != '"' && text.front() != '\'' &&
                      !(allow && text.front() == '[');
    if (!bare && text.find('\n') != std::string::npos)
      return AddError(key, origin, fmt::format("`{}`: line break in the value", key));
    tl::expected<TomlTable, TomlError> parsed =
        ParseToml(fmt::format("v = {}\n", bare ? TomlString(text) : text));
    if (!parsed) {
      return AddError(
          key, origin,
          fmt::format("`{}`: the value is not TOML ({}); it wants {}", key, parsed.error().message,
                      allow ? "an array of strings" : Name(field->type)));
    }
    // "v.x = 1" cannot be written, and the text holds one line: `v` is all there is.
    parsed->nodes.front().key = key;
    layers_.push_back({origin, *std::move(parsed)});
  }

  // --- Locks

  void ReadAllowed(const Layer& layer) {
    const TomlNode* node = FindNode(layer.table, "allow_override");
    if (node == nullptr) return;
    const Origin origin = At(layer.origin, *node);
    for (const std::string& key : ReadNames("allow_override", *node, layer.origin)) {
      if (schema_.Find(key) != nullptr)
        allowed_.insert(key);
      else
        AddError("allow_override", origin,
                 fmt::format("`allow_override` names `{}`, which is no key; {}", Shown(key),
                             Suggest(schema_, key)));
    }
  }

  void ApplyLocks(const Layer& layer) {
    const TomlNode* node = FindNode(layer.table, "locked");
    if (node == nullptr) return;
    const Origin origin = At(layer.origin, *node);
    for (const std::string& name : ReadNames("locked", *node, layer.origin)) {
      bool found = false;
      for (const Field& field : schema_.fields()) {
        if (field.key != name && !field.key.starts_with(name + ".")) continue;
        found = true;
        locks_.emplace(field.key, origin);
      }
      if (!found)
        AddError("locked", origin,
                 fmt::format("`locked` names `{}`, which is neither key nor table; {}", Shown(name),
                             Suggest(schema_, name)));
    }
  }

  // An array of strings; one string stands for itself in a flag.
  std::vector<std::string> ReadNames(std::string_view key, const TomlNode& node,
                                     const Origin& origin) {
    std::vector<std::string> names;
    if (const auto* text = std::get_if<std::string>(&node.value);
        text != nullptr && origin.kind == Origin::Kind::kFlag)
      return {*text};
    const auto* array = std::get_if<TomlArray>(&node.value);
    if (array == nullptr) {
      AddError(std::string(key), At(origin, node),
               fmt::format("`{}` wants an array of keys, found {}; write [\"table.key\"]", key,
                           DescribeNode(node)));
      return names;
    }
    for (const TomlNode& element : *array) {
      if (const auto* text = std::get_if<std::string>(&element.value))
        names.push_back(*text);
      else
        AddError(std::string(key), At(origin, element),
                 fmt::format("`{}` wants strings, found {}", key, DescribeNode(element)));
    }
    return names;
  }

  // True if `entries` may take the place of what stands there.
  bool MayReplace(const Field& field, const Entries& entries, const Origin& origin) {
    const auto lock = locks_.find(field.key);
    if (lock == locks_.end() || allowed_.contains(field.key)) return true;
    // A default is locked like a value: whoever locks a table means all of it.
    Entries before;
    if (const auto given = values_.find(field.key); given != values_.end())
      before = given->second;
    else if (field.default_value)
      before[field.key] = {*field.default_value, Origin()};
    else
      return true;
    const auto same = [](const auto& a, const auto& b) {
      return a.first == b.first && a.second.value == b.second.value;
    };
    if (std::equal(entries.begin(), entries.end(), before.begin(), before.end(), same)) return true;
    const RecipeEntry& old = before.at(field.key);
    AddError(field.key, origin,
             fmt::format("`{}` is locked at {} ({}; lock: {}); to change it on purpose, add "
                         "allow_override = [\"{}\"]",
                         field.key, Shown(ToToml(old.value)), old.origin.ToString(),
                         lock->second.ToString(), field.key));
    return false;
  }

  // --- Values

  void Apply(const Layer& layer) {
    // A flag's key is dotted already.
    if (layer.origin.kind == Origin::Kind::kFlag) {
      const TomlNode& node = layer.table.nodes.front();
      if (const Field* field = schema_.Find(node.key)) Assign(*field, node, layer.origin);
      return;
    }
    ApplyTable(layer.table, kNoTable, layer.origin);
    ApplyLocks(layer);
  }

  void ApplyTable(const TomlTable& table, std::string_view prefix, const Origin& origin) {
    for (const TomlNode& node : table.nodes) {
      if (prefix.empty() && IsReserved(node.key)) continue;
      const std::string key = Join(prefix, node.key);
      if (const Field* field = schema_.Find(key)) {
        Assign(*field, node, At(origin, node));
      } else if (!schema_.IsTable(key)) {
        AddError(key, At(origin, node),
                 fmt::format("unknown key `{}`; {}", Shown(key), Suggest(schema_, key)));
      } else if (const auto* child = std::get_if<TomlTable>(&node.value)) {
        ApplyTable(*child, key, origin);
      } else {
        AddError(
            key, At(origin, node),
            fmt::format("`{}` is a table, found {}; set the keys in it", key, DescribeNode(node)));
      }
    }
  }

  void Assign(const Field& field, const TomlNode& node, const Origin& origin) {
    seen_.insert(field.key);
    Entries entries;
    const bool fine = field.type == FieldType::kTables
                          ? ReadTables(field, node, origin, entries)
                          : ReadField(field, field.key, node, origin, entries);
    if (fine && MayReplace(field, entries, origin)) values_[field.key] = std::move(entries);
  }

  bool ReadField(const Field& field, const std::string& key, const TomlNode& node,
                 const Origin& origin, Entries& entries) {
    std::optional<RecipeValue> value = ReadValue(field.type, key, node, origin);
    if (!value) return false;
    if (const std::optional<std::string> why = Refuse(field, *value)) {
      AddError(key, origin, fmt::format("`{}` = {}: {}", key, Shown(ToToml(*value)), *why));
      return false;
    }
    entries[key] = {*std::move(value), origin};
    return true;
  }

  bool ReadTables(const Field& field, const TomlNode& node, const Origin& origin,
                  Entries& entries) {
    const auto* array = std::get_if<TomlArray>(&node.value);
    if (array == nullptr) return WrongType(field.type, field.key, node, origin);
    bool fine = true;
    for (size_t i = 0; i < array->size() && !Full(); ++i) {
      const TomlNode& element = (*array)[i];
      const std::string key = fmt::format("{}[{}]", field.key, i);
      const auto* table = std::get_if<TomlTable>(&element.value);
      if (table == nullptr)
        fine = WrongType(FieldType::kTables, key, element, At(origin, element));
      else
        fine &= ReadItem(*field.item, key, *table, kNoTable, origin) &&
                CompleteItem(*field.item, key, At(origin, element));
    }
    fine &= !Full();
    const auto size = static_cast<int64_t>(array->size());
    if (const std::optional<std::string> why = Refuse(field, size)) {
      AddError(field.key, origin,
               fmt::format("`{}` has {} tables: the number {}", field.key, size, *why));
      fine = false;
    }
    entries = std::move(item_entries_);
    item_entries_.clear();
    entries[field.key] = {size, origin};
    return fine;
  }

  // The keys of one table of an array; `prefix` is the part of the key inside the table.
  bool ReadItem(const Schema& item, const std::string& item_key, const TomlTable& table,
                std::string_view prefix, const Origin& origin) {
    bool fine = true;
    for (const TomlNode& node : table.nodes) {
      const std::string inner = Join(prefix, node.key);
      const std::string key = fmt::format("{}.{}", item_key, inner);
      const auto* child = std::get_if<TomlTable>(&node.value);
      if (const Field* field = item.Find(inner)) {
        fine &= ReadField(*field, key, node, At(origin, node), item_entries_);
      } else if (child != nullptr && item.IsTable(inner)) {
        fine &= ReadItem(item, item_key, *child, inner, origin);
      } else {
        AddError(key, At(origin, node),
                 fmt::format("unknown key `{}` in `{}`; {}", Shown(inner), item_key,
                             Suggest(item, inner)));
        fine = false;
      }
    }
    return fine;
  }

  bool CompleteItem(const Schema& item, const std::string& item_key, const Origin& origin) {
    bool fine = true;
    for (const Field& field : item.fields()) {
      const std::string key = fmt::format("{}.{}", item_key, field.key);
      if (item_entries_.contains(key)) continue;
      if (field.default_value) {
        item_entries_[key] = {*field.default_value, Origin()};
      } else {
        AddError(key, origin, fmt::format("`{}` is missing ({}); add it", key, field.options.help));
        fine = false;
      }
    }
    return fine;
  }

  bool WrongType(FieldType wanted, const std::string& key, const TomlNode& node,
                 const Origin& origin) {
    AddError(key, origin,
             fmt::format("`{}` wants {}, found {}; {}", key, Name(wanted), DescribeNode(node),
                         TypeRemedy(wanted, node)));
    return false;
  }

  std::optional<RecipeValue> ReadValue(FieldType type, const std::string& key, const TomlNode& node,
                                       const Origin& origin) {
    switch (type) {
      case FieldType::kBool:
        return ReadScalar<bool>(type, key, node, origin);
      case FieldType::kInt:
        return ReadScalar<int64_t>(type, key, node, origin);
      case FieldType::kFloat:
        return ReadScalar<double>(type, key, node, origin);
      case FieldType::kString:
        return ReadScalar<std::string>(type, key, node, origin);
      case FieldType::kInts:
        return ReadArray<int64_t>(type, FieldType::kInt, key, node, origin);
      case FieldType::kFloats:
        return ReadArray<double>(type, FieldType::kFloat, key, node, origin);
      case FieldType::kStrings:
        return ReadArray<std::string>(type, FieldType::kString, key, node, origin);
      case FieldType::kTables:
        break;
    }
    CHECK(false, "`{}` read as a value", key);
    return std::nullopt;
  }

  template <class T>
  std::optional<T> ReadScalar(FieldType type, const std::string& key, const TomlNode& node,
                              const Origin& origin) {
    if (const T* value = std::get_if<T>(&node.value)) return *value;
    if constexpr (std::is_same_v<T, double>) {
      // The one conversion there is: 3 for 3.0, while it is exact.
      if (const int64_t* value = std::get_if<int64_t>(&node.value)) {
        if (*value >= -kMaxExactFloat && *value <= kMaxExactFloat)
          return static_cast<double>(*value);
        AddError(
            key, origin,
            fmt::format(
                "`{}`: the integer {} is not exact as a float; write it with a point or exponent",
                key, *value));
        return std::nullopt;
      }
    }
    WrongType(type, key, node, origin);
    return std::nullopt;
  }

  template <class T>
  std::optional<std::vector<T>> ReadArray(FieldType type, FieldType element_type,
                                          const std::string& key, const TomlNode& node,
                                          const Origin& origin) {
    const auto* array = std::get_if<TomlArray>(&node.value);
    if (array == nullptr) {
      WrongType(type, key, node, origin);
      return std::nullopt;
    }
    std::vector<T> values;
    bool fine = true;
    for (size_t i = 0; i < array->size(); ++i) {
      std::optional<T> value = ReadScalar<T>(element_type, fmt::format("{}[{}]", key, i),
                                             (*array)[i], At(origin, (*array)[i]));
      if (value)
        values.push_back(*std::move(value));
      else
        fine = false;
    }
    if (!fine) return std::nullopt;
    return values;
  }

  // Defaults for what no layer gave; an error for what must be given.
  void Complete() {
    for (const Field& field : schema_.fields()) {
      if (seen_.contains(field.key)) continue;
      if (field.default_value) {
        values_[field.key][field.key] = {*field.default_value, Origin()};
        continue;
      }
      AddError(field.key, {.kind = Origin::Kind::kFile, .name = input_.file.name},
               fmt::format("`{}` is missing ({}); add it to the file or pass --set {}=VALUE",
                           field.key, field.options.help, field.key));
    }
  }

  const Schema& schema_;
  const RecipeInput& input_;
  std::vector<Layer> layers_;              // lowest first
  std::map<std::string, Entries> values_;  // by field; an array of tables has many entries
  Entries item_entries_;                   // of the array of tables being read
  std::set<std::string> seen_;             // fields that some layer gave, right or wrong
  std::map<std::string, Origin> locks_;    // field -> who locked it
  std::set<std::string> allowed_;          // locked fields that may be changed
  std::vector<RecipeError> errors_;
  size_t num_dropped_ = 0;
};

Result<Recipe> Recipe::Resolve(const Schema& schema, const RecipeInput& input,
                               std::vector<RecipeError>* errors) {
  RecipeResolver resolver(schema, input);
  Recipe recipe;
  resolver.Run(recipe);
  std::vector<RecipeError> found = std::move(resolver.errors());
  if (errors != nullptr) *errors = found;
  if (found.empty()) return recipe;
  const size_t total = found.size() + resolver.num_dropped();
  std::string message =
      total == 1 ? "the recipe has an error:" : fmt::format("the recipe has {} errors:", total);
  for (const RecipeError& error : found)
    message += fmt::format("\n  {}: {}", error.origin.ToString(), error.message);
  if (resolver.num_dropped() > 0) message += fmt::format("\n  and {} more", resolver.num_dropped());
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

}  // namespace ulmus
