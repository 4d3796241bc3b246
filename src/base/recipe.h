// Recipes: strict TOML, in layers, in which every value remembers where it came from. Format:
// docs/formats/recipe.md.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/recipe_schema.h"
#include "base/status.h"

namespace ulmus {

// Where a value was given.
struct Origin {
  enum class Kind { kDefault, kPreset, kFile, kFlag };
  Kind kind = Kind::kDefault;
  std::string name;  // preset name, path, or the flag's "key=value"
  int64_t line = 0;  // 0: not in a text
  int64_t column = 0;
  // "default", "preset olmo3_7b_stage1:4:1", "file run.toml:12:3", "flag --set optim.lr_peak=3e-4"
  std::string ToString() const;
};

struct RecipeError {
  std::string key;  // "" if the text could not be read
  std::string message;
  Origin origin;
};

// A text and the name under which messages speak of it (a path or a preset's name).
struct RecipeSource {
  std::string name;
  std::string text;
};

// What a recipe is made of. A file or preset that says `preset = "x"` stands upon preset x, which
// must be in `presets`. Later layers win: presets, then the file, then the flags.
struct RecipeInput {
  RecipeSource file = {};
  std::vector<std::string> flags = {};  // "key=value", each from one --set
  std::span<const RecipeSource> presets = {};
};

// Reads a recipe's text, of 1 MiB at most. kInvalidArgument also where there is no such file: the
// command line is wrong.
Result<RecipeSource> ReadRecipeFile(const Path& path);

struct RecipeEntry {
  RecipeValue value;
  Origin origin;
};

// What a printed recipe says beside the values.
struct RecipeComments {
  bool origins = false;  // after each value
  bool help = false;     // before each value
};

struct RecipeDifference {
  std::string key;
  std::string before, after;  // as TOML, "(none)" where the key is missing
  Origin origin;              // of `after`; of `before` if the key is gone
};

// The resolved values, complete: one for every field of the schema. Tables of an array are entries
// of their own, "data.sources[0].path", beside the array's length under "data.sources".
class Recipe {
 public:
  // kInvalidArgument lists all errors, each with its origin and what to do; `errors`, if given,
  // receives them one by one.
  static Result<Recipe> Resolve(const Schema& schema, const RecipeInput& input,
                                std::vector<RecipeError>* errors = nullptr);

  // Values by key. CHECKs that the schema has the key with that type.
  bool GetBool(std::string_view key) const { return Get<bool>(key); }
  int64_t GetInt(std::string_view key) const { return Get<int64_t>(key); }
  double GetFloat(std::string_view key) const { return Get<double>(key); }
  const std::string& GetString(std::string_view key) const { return Get<std::string>(key); }
  const std::vector<int64_t>& GetInts(std::string_view key) const {
    return Get<std::vector<int64_t>>(key);
  }
  const std::vector<double>& GetFloats(std::string_view key) const {
    return Get<std::vector<double>>(key);
  }
  const std::vector<std::string>& GetStrings(std::string_view key) const {
    return Get<std::vector<std::string>>(key);
  }
  // Number of tables in an array of tables.
  int64_t NumTables(std::string_view key) const { return Get<int64_t>(key); }
  template <class T>
  const T& Get(std::string_view key) const;

  const Origin& origin(std::string_view key) const { return Entry(key).origin; }
  const std::map<std::string, RecipeEntry, std::less<>>& entries() const { return entries_; }

  // Complete TOML that resolves, alone and without presets, to the same values and locks.
  std::string ToToml(RecipeComments comments = {}) const;
  // [{"key": ..., "value": ..., "origin": ...}, ...] sorted by key.
  std::string ToJson() const;
  // SHA-256 of the values: independent of order, comments and origins. With `tables`, of the keys
  // below those tables only
  // ({"data"}), so that a part of a run can be compared on its own.
  std::string Hash(std::span<const std::string_view> tables = {}) const;

 private:
  friend class RecipeResolver;
  const RecipeEntry& Entry(std::string_view key) const;

  Schema schema_;
  std::map<std::string, RecipeEntry, std::less<>> entries_;
  std::set<std::string> locked_;
};

// What changed between two recipes, by key. Empty if and only if the hashes are equal.
std::vector<RecipeDifference> Differences(const Recipe& before, const Recipe& after);

template <class T>
const T& Recipe::Get(std::string_view key) const {
  const T* value = std::get_if<T>(&Entry(key).value);
  CHECK(value != nullptr, "recipe key `{}` holds {}", key, ulmus::ToToml(Entry(key).value));
  return *value;
}

}  // namespace ulmus
