// What a recipe may say: one entry per key, declared by the owner of the option (base/recipe.h
// reads against it).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace ulmus {

// Same order as RecipeValue's alternatives; kTables is an array of tables, whose value is its
// length.
enum class FieldType { kBool, kInt, kFloat, kString, kInts, kFloats, kStrings, kTables };
using RecipeValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<double>, std::vector<std::string>>;

std::string_view Name(FieldType type);  // "a boolean", "an array of strings"
// As TOML spells it; floats in the shortest form that parses back.
std::string ToToml(const RecipeValue& value);

// Limits of a value. For arrays: min .. choices hold for every element, allow_empty for the array
// and its elements.
struct FieldOptions {
  std::string help = "";                       // one line, ends up in the printed recipe
  std::optional<double> min = std::nullopt;    // value >= min
  std::optional<double> max = std::nullopt;    // value <= max
  std::optional<double> above = std::nullopt;  // value > above
  std::optional<double> below = std::nullopt;  // value < below
  std::vector<std::string> choices = {};
  bool allow_empty = false;  // "" or []; always allowed if that is the default
  // Anything else. The message says what is wanted: it is printed after "`key` = value: ".
  std::function<Status(const RecipeValue&)> check = nullptr;
};

class Schema;

struct Field {
  std::string key;  // dotted, "optim.lr_peak"
  FieldType type = FieldType::kInt;
  std::optional<RecipeValue> default_value;  // nullopt: must be given
  FieldOptions options;
  std::shared_ptr<const Schema> item;  // kTables: the keys of one table
};

// Why `value` is refused ("must be >= 1"), or nullopt. `value` has the field's type.
std::optional<std::string> Refuse(const Field& field, const RecipeValue& value);

// The declared fields, in the order in which they are printed. Mistakes in a declaration are
// CHECKed: a key that is not lower-case words joined by dots, one declared twice or that is also a
// table, a default outside its own limits.
//   Schema schema;
//   schema.Int("train.steps", std::nullopt, {.help = "optimizer steps", .min = 1})
//       .Float("optim.lr_peak", 3e-4, {.help = "learning rate after warm-up", .above = 0});
// A default of nullopt means that the recipe must give the key. Structs are bound more simply:
// base/recipe_struct.h.
class Schema {
 public:
  Schema& Bool(std::string key, std::optional<bool> default_value, FieldOptions options);
  Schema& Int(std::string key, std::optional<int64_t> default_value, FieldOptions options);
  Schema& Float(std::string key, std::optional<double> default_value, FieldOptions options);
  Schema& String(std::string key, std::optional<std::string> default_value, FieldOptions options);
  Schema& Ints(std::string key, std::optional<std::vector<int64_t>> default_value,
               FieldOptions options);
  Schema& Floats(std::string key, std::optional<std::vector<double>> default_value,
                 FieldOptions options);
  Schema& Strings(std::string key, std::optional<std::vector<std::string>> default_value,
                  FieldOptions options);
  // An array of tables, `[[key]]`, empty by default; `item` holds no tables itself. With
  // `required`, at least one.
  Schema& Tables(std::string key, Schema item, FieldOptions options, bool required = false);
  Schema& Add(Field field, Loc where = Loc::current());

  const std::vector<Field>& fields() const { return fields_; }
  const Field* Find(std::string_view key) const;  // nullptr if there is none
  // True if fields lie below it: "optim" for "optim.lr_peak".
  bool IsTable(std::string_view key) const;
  // All keys, then all tables: what a mistyped name may have meant.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<Field> fields_;
  std::vector<std::string> names_;
};

}  // namespace ulmus
