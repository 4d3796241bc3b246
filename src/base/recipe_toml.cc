#include "base/recipe_toml.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

// Headers only and without exceptions: errors come back as values.
#undef TOML_HEADER_ONLY
#undef TOML_SHARED_LIB
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace ulmus {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Refuses, without recursion, what toml++ 3.3 would not survive: it bounds the nesting of arrays
// but not of dotted keys and frees its tables recursively, and some letters beyond ASCII in a bare
// key are undefined behaviour. Knows just enough TOML to skip strings and comments.
class Scanner {
 public:
  explicit Scanner(std::string_view text)
      : text_(text), at_(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0) {}

  std::optional<TomlError> Scan() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const int64_t column = static_cast<int64_t>(at_ - line_start_) + 1;
      if (c == '#')
        SkipComment();
      else if (c == '"' || c == '\'')
        SkipString(c);
      else if (static_cast<unsigned char>(c) >= 0x80)
        return TomlError{line_, column, "a byte beyond ASCII outside a string"};
      else if (!Accept(c))
        return TomlError{line_, column,
                         fmt::format("nested more than {} levels deep", kMaxTomlDepth)};
    }
    return std::nullopt;
  }

 private:
  bool Accept(char c) {
    ++at_;
    if (c == '\n') NewLine();
    if (c == '[' || c == '{') ++brackets_;
    if ((c == ']' || c == '}') && brackets_ > 0) --brackets_;
    if (c == '.') ++dots_;
    if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) dots_ = 0;
    return brackets_ <= kMaxTomlDepth && dots_ < kMaxTomlDepth;
  }

  void NewLine() {
    ++line_;
    line_start_ = at_;
  }

  void SkipComment() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  void SkipString(char quote) {
    const bool multi_line = text_.substr(at_, 3) == std::string(3, quote);
    const std::string close(multi_line ? 3 : 1, quote);
    at_ += close.size();
    while (at_ < text_.size()) {
      if (text_.substr(at_, close.size()) == close) {
        at_ += close.size();
        // Up to two quotes may precede the closing three.
        if (multi_line) {
          for (int extra = 0; extra < 2 && at_ < text_.size() && text_[at_] == quote; ++extra)
            ++at_;
        }
        return;
      }
      if (text_[at_] == '\n') {
        if (!multi_line) return;  // unterminated: the parser will say so
        ++at_;
        NewLine();
        continue;
      }
      at_ += quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n'
                 ? 2
                 : 1;
    }
  }

  std::string_view text_;
  size_t at_;
  size_t line_start_ = 0;
  int64_t line_ = 1;
  int64_t brackets_ = 0;
  int64_t dots_ = 0;
};

TomlNode Convert(std::string key, const toml::node& node, const toml::source_position& position);

TomlTable ConvertTable(const toml::table& table) {
  TomlTable result;
  result.nodes.reserve(table.size());
  for (const auto& [key, node] : table)
    result.nodes.push_back(Convert(std::string(key.str()), node, key.source().begin));
  return result;
}

TomlArray ConvertArray(const toml::array& array) {
  TomlArray result;
  result.reserve(array.size());
  for (const toml::node& node : array) result.push_back(Convert("", node, node.source().begin));
  return result;
}

TomlNode Convert(std::string key, const toml::node& node, const toml::source_position& position) {
  TomlNode result;
  result.key = std::move(key);
  result.line = static_cast<int64_t>(position.line);
  result.column = static_cast<int64_t>(position.column);
  if (const auto* value = node.as_boolean())
    result.value = value->get();
  else if (const auto* integer = node.as_integer())
    result.value = integer->get();
  else if (const auto* number = node.as_floating_point())
    result.value = number->get();
  else if (const auto* text = node.as_string())
    result.value = text->get();
  else if (const auto* array = node.as_array())
    result.value = ConvertArray(*array);
  else if (const auto* table = node.as_table())
    result.value = ConvertTable(*table);
  else
    result.value = TomlDate{};
  return result;
}

}  // namespace

tl::expected<TomlTable, TomlError> ParseToml(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxTomlBytes) {
    return tl::unexpected(TomlError{1, 1,
                                    fmt::format("{} bytes are more than the {} a recipe may have",
                                                text.size(), kMaxTomlBytes)});
  }
  if (std::optional<TomlError> refused = Scanner(text).Scan())
    return tl::unexpected(*std::move(refused));
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::source_position& position = parsed.error().source().begin;
    return tl::unexpected(TomlError{static_cast<int64_t>(position.line),
                                    static_cast<int64_t>(position.column),
                                    std::string(parsed.error().description())});
  }
  return ConvertTable(parsed.table());
}

std::string TomlString(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      case '\t':
        quoted += "\\t";
        break;
      case '\r':
        quoted += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
          quoted += fmt::format("\\u{:04X}", c);
        else
          quoted += c;
    }
  }
  return quoted + '"';
}

std::string TomlFloat(double value) {
  std::string text = fmt::format("{}", value);
  const bool recognisable =
      text.find_first_of(".en") != std::string::npos;  // "1.5", "1e+20", "inf", "nan"
  return recognisable ? text : text + ".0";
}

std::string DescribeNode(const TomlNode& node) {
  struct {
    std::string operator()(bool value) const { return fmt::format("the boolean {}", value); }
    std::string operator()(int64_t value) const { return fmt::format("the integer {}", value); }
    std::string operator()(double value) const {
      return fmt::format("the float {}", TomlFloat(value));
    }
    std::string operator()(const std::string& value) const {
      return value.size() > 80 ? "a long string" : fmt::format("the string {}", TomlString(value));
    }
    std::string operator()(TomlDate) const { return "a date or time"; }
    std::string operator()(const TomlArray&) const { return "an array"; }
    std::string operator()(const TomlTable&) const { return "a table"; }
  } describe;
  return std::visit(describe, node.value);
}

}  // namespace ulmus
