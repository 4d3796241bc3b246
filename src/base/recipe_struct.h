// Binds recipe keys to the fields of a plain struct: name, default, help and limits stand once,
// beside the struct.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/recipe.h"

namespace ulmus {

//   struct OptimConfig {
//     double lr_peak = 3e-4;
//     int64_t warmup_steps = 2000;
//   };
//   const StructSchema<OptimConfig>& OptimSchema() {
//     static const auto schema = StructSchema<OptimConfig>("optim")
//         .Add("lr_peak", &OptimConfig::lr_peak, {.help = "learning rate after warm-up", .above =
//         0}) .Add("warmup_steps", &OptimConfig::warmup_steps, {.help = "steps of linear warm-up",
//         .min = 0});
//     return schema;
//   }
// Then `OptimSchema().AddTo(schema)` declares the keys "optim.lr_peak" and "optim.warmup_steps",
// whose defaults are those of the struct, and `OptimSchema().Read(recipe)` makes the struct. Fields
// are bool, int64_t, double, std::string, or vectors of the last three; AddTables takes a vector of
// another bound struct.
template <class Struct>
class StructSchema {
 public:
  // `table` may be dotted or empty: keys are then those of the top, or of one table of an array.
  explicit StructSchema(std::string table = "") : table_(std::move(table)) {}

  // The default is the member's in a default-made Struct.
  template <class T>
  StructSchema& Add(std::string_view name, T Struct::* member, FieldOptions options) {
    return AddField(name, member, std::move(options), RecipeValue(Struct{}.*member));
  }
  // Without a default: the recipe must give it.
  template <class T>
  StructSchema& Require(std::string_view name, T Struct::* member, FieldOptions options) {
    return AddField(name, member, std::move(options), std::nullopt);
  }
  // An array of tables, one `Item` each.
  template <class Item>
  StructSchema& AddTables(std::string_view name, std::vector<Item> Struct::* member,
                          StructSchema<Item> item, FieldOptions options, bool required = false) {
    const std::string key = Key(name);
    Schema item_schema;
    item.AddTo(item_schema);
    schema_.Tables(key, std::move(item_schema), std::move(options), required);
    readers_.push_back([key, member, item = std::move(item)](
                           const Recipe& recipe, const std::string& prefix, Struct& result) {
      for (int64_t i = 0; i < recipe.NumTables(prefix + key); ++i)
        (result.*member).push_back(item.Read(recipe, fmt::format("{}{}[{}].", prefix, key, i)));
    });
    return *this;
  }

  void AddTo(Schema& schema) const {
    for (const Field& field : schema_.fields()) schema.Add(field);
  }

  // `prefix` goes before every key; for one table of an array ("data.sources[0].").
  Struct Read(const Recipe& recipe, const std::string& prefix = "") const {
    Struct result;
    for (const auto& reader : readers_) reader(recipe, prefix, result);
    return result;
  }

 private:
  template <class T>
  static constexpr FieldType TypeOf() {
    if constexpr (std::is_same_v<T, bool>)
      return FieldType::kBool;
    else if constexpr (std::is_same_v<T, int64_t>)
      return FieldType::kInt;
    else if constexpr (std::is_same_v<T, double>)
      return FieldType::kFloat;
    else if constexpr (std::is_same_v<T, std::string>)
      return FieldType::kString;
    else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
      return FieldType::kInts;
    else if constexpr (std::is_same_v<T, std::vector<double>>)
      return FieldType::kFloats;
    else {
      // int and float members would lose values or change them (3e-4f is not 3e-4).
      static_assert(std::is_same_v<T, std::vector<std::string>>,
                    "recipe fields are bool, int64_t, double, string or vectors");
      return FieldType::kStrings;
    }
  }

  template <class T>
  StructSchema& AddField(std::string_view name, T Struct::* member, FieldOptions options,
                         std::optional<RecipeValue> default_value) {
    const std::string key = Key(name);
    schema_.Add({.key = key,
                 .type = TypeOf<T>(),
                 .default_value = std::move(default_value),
                 .options = std::move(options),
                 .item = nullptr});
    readers_.push_back(
        [key, member](const Recipe& recipe, const std::string& prefix, Struct& result) {
          result.*member = recipe.Get<T>(prefix + key);
        });
    return *this;
  }

  std::string Key(std::string_view name) const {
    return table_.empty() ? std::string(name) : fmt::format("{}.{}", table_, name);
  }

  std::string table_;
  Schema schema_;
  std::vector<std::function<void(const Recipe&, const std::string&, Struct&)>> readers_;
};

}  // namespace ulmus
