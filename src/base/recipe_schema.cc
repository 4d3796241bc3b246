#include "base/recipe_schema.h"

#include <algorithm>
#include <cmath>

#include "base/recipe_toml.h"

namespace ulmus {
namespace {

// Keys of every recipe that belong to the reader (base/recipe.h).
constexpr std::string_view kReserved[] = {"preset", "locked", "allow_override"};

bool IsKey(std::string_view key) {
  bool word = false;
  for (char c : key) {
    if (c == '.') {
      if (!word) return false;
      word = false;
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_') {
      word = true;
    } else {
      return false;
    }
  }
  return word;
}

bool IsBelow(std::string_view key, std::string_view table) {
  return key.size() > table.size() + 1 && key.starts_with(table) && key[table.size()] == '.';
}

template <class T>
Field MakeField(std::string key, FieldType type, std::optional<T> default_value,
                FieldOptions options) {
  Field field{.key = std::move(key),
              .type = type,
              .default_value = std::nullopt,
              .options = std::move(options),
              .item = nullptr};
  if (default_value) field.default_value.emplace(*std::move(default_value));
  return field;
}

std::optional<std::string> RefuseNumber(const FieldOptions& options, double value) {
  if (!std::isfinite(value)) return "must be finite";
  if (options.min && value < *options.min) return fmt::format("must be >= {}", *options.min);
  if (options.max && value > *options.max) return fmt::format("must be <= {}", *options.max);
  if (options.above && value <= *options.above) return fmt::format("must be > {}", *options.above);
  if (options.below && value >= *options.below) return fmt::format("must be < {}", *options.below);
  return std::nullopt;
}

std::optional<std::string> RefuseText(const FieldOptions& options, const std::string& value) {
  if (value.empty() && !options.allow_empty)
    return "must not be empty; leave the key out to get the default";
  if (value.find('\0') != std::string::npos) return "must not hold a NUL character";
  if (options.choices.empty() ||
      std::count(options.choices.begin(), options.choices.end(), value) > 0)
    return std::nullopt;
  return fmt::format("must be one of {}", fmt::join(options.choices, ", "));
}

struct Printer {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return fmt::format("{}", v); }
  std::string operator()(double v) const { return TomlFloat(v); }
  std::string operator()(const std::string& v) const { return TomlString(v); }
  template <class T>
  std::string operator()(const std::vector<T>& values) const {
    std::string text = "[";
    for (const T& v : values) text += (text.size() > 1 ? ", " : "") + (*this)(v);
    return text + "]";
  }
};

struct Refuser {
  const FieldOptions& options;

  std::optional<std::string> operator()(bool) const { return std::nullopt; }
  std::optional<std::string> operator()(int64_t value) const {
    return RefuseNumber(options, static_cast<double>(value));
  }
  std::optional<std::string> operator()(double value) const { return RefuseNumber(options, value); }
  std::optional<std::string> operator()(const std::string& value) const {
    return RefuseText(options, value);
  }
  template <class T>
  std::optional<std::string> operator()(const std::vector<T>& values) const {
    if (values.empty() && !options.allow_empty)
      return "must not be empty; leave the key out to get the default";
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::optional<std::string> why = (*this)(values[i]))
        return fmt::format("element {}: {}", i, *why);
    }
    return std::nullopt;
  }
};

}  // namespace

std::string_view Name(FieldType type) {
  switch (type) {
    case FieldType::kBool:
      return "a boolean";
    case FieldType::kInt:
      return "an integer";
    case FieldType::kFloat:
      return "a float";
    case FieldType::kString:
      return "a string";
    case FieldType::kInts:
      return "an array of integers";
    case FieldType::kFloats:
      return "an array of floats";
    case FieldType::kStrings:
      return "an array of strings";
    case FieldType::kTables:
      return "an array of tables";
  }
  return "?";
}

std::string ToToml(const RecipeValue& value) { return std::visit(Printer(), value); }

std::optional<std::string> Refuse(const Field& field, const RecipeValue& value) {
  // A default stands for "not set" where it is empty, and the printed recipe must parse back.
  if (field.default_value && *field.default_value == value) return std::nullopt;
  if (std::optional<std::string> why = std::visit(Refuser{field.options}, value)) return why;
  if (!field.options.check) return std::nullopt;
  const Status status = field.options.check(value);
  if (status.ok()) return std::nullopt;
  return status.message();
}

Schema& Schema::Bool(std::string key, std::optional<bool> default_value, FieldOptions options) {
  return Add(MakeField(std::move(key), FieldType::kBool, default_value, std::move(options)));
}
Schema& Schema::Int(std::string key, std::optional<int64_t> default_value, FieldOptions options) {
  return Add(MakeField(std::move(key), FieldType::kInt, default_value, std::move(options)));
}
Schema& Schema::Float(std::string key, std::optional<double> default_value, FieldOptions options) {
  return Add(MakeField(std::move(key), FieldType::kFloat, default_value, std::move(options)));
}
Schema& Schema::String(std::string key, std::optional<std::string> default_value,
                       FieldOptions options) {
  return Add(
      MakeField(std::move(key), FieldType::kString, std::move(default_value), std::move(options)));
}
Schema& Schema::Ints(std::string key, std::optional<std::vector<int64_t>> default_value,
                     FieldOptions options) {
  return Add(
      MakeField(std::move(key), FieldType::kInts, std::move(default_value), std::move(options)));
}
Schema& Schema::Floats(std::string key, std::optional<std::vector<double>> default_value,
                       FieldOptions options) {
  return Add(
      MakeField(std::move(key), FieldType::kFloats, std::move(default_value), std::move(options)));
}
Schema& Schema::Strings(std::string key, std::optional<std::vector<std::string>> default_value,
                        FieldOptions options) {
  return Add(
      MakeField(std::move(key), FieldType::kStrings, std::move(default_value), std::move(options)));
}

Schema& Schema::Tables(std::string key, Schema item, FieldOptions options, bool required) {
  for (const Field& field : item.fields())
    CHECK(field.type != FieldType::kTables, "{}: tables in tables", key);
  Field field = MakeField(std::move(key), FieldType::kTables,
                          required ? std::nullopt : std::optional<int64_t>(0), std::move(options));
  if (required) field.options.min = 1;
  field.item = std::make_shared<const Schema>(std::move(item));
  return Add(std::move(field));
}

Schema& Schema::Add(Field field, Loc where) {
  const std::string& key = field.key;
  CHECK_AT(where, IsKey(key), "`{}` is not lower-case words joined by dots", key);
  CHECK_AT(
      where,
      std::count(std::begin(kReserved), std::end(kReserved), key.substr(0, key.find('.'))) == 0,
      "`{}` is reserved", key);
  CHECK_AT(where, Find(key) == nullptr && !IsTable(key), "`{}` is declared twice", key);
  for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
    const std::string table = key.substr(0, dot);
    CHECK_AT(where, Find(table) == nullptr, "`{}` lies below the value `{}`", key, table);
    if (std::find(names_.begin(), names_.end(), table) == names_.end()) names_.push_back(table);
  }
  if (field.default_value) {
    // Without the exemption for defaults, except that an empty default is fine.
    FieldOptions limits = field.options;
    limits.allow_empty = true;
    const bool empty_text = std::holds_alternative<std::string>(*field.default_value) &&
                            std::get<std::string>(*field.default_value).empty();
    if (empty_text) limits.choices.clear();
    const std::optional<std::string> why = std::visit(Refuser{limits}, *field.default_value);
    CHECK_AT(where, !why, "default {} of `{}` {}", ToToml(*field.default_value), key,
             why.value_or(""));
  }
  names_.insert(names_.begin() + static_cast<ptrdiff_t>(fields_.size()), key);
  fields_.push_back(std::move(field));
  return *this;
}

const Field* Schema::Find(std::string_view key) const {
  for (const Field& field : fields_) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

bool Schema::IsTable(std::string_view key) const {
  return std::any_of(fields_.begin(), fields_.end(),
                     [key](const Field& field) { return IsBelow(field.key, key); });
}

}  // namespace ulmus
