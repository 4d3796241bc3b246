// TOML text as a plain tree, with positions and bounds. The only file that knows toml++; recipes
// proper are in base/recipe.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tl/expected.hpp>

namespace ulmus {

struct TomlNode;
using TomlArray = std::vector<TomlNode>;
struct TomlTable {
  std::vector<TomlNode> nodes;  // sorted by key
};
struct TomlDate {};  // recognised so that it can be refused by name

struct TomlNode {
  std::string key;  // within its table; "" inside an array
  std::variant<bool, int64_t, double, std::string, TomlDate, TomlArray, TomlTable> value;
  int64_t line = 0;  // of the key, or of the value inside an array; from 1
  int64_t column = 0;
};

struct TomlError {
  int64_t line = 0;
  int64_t column = 0;
  std::string message;
};

// What is refused before parsing, so that hostile text costs neither memory nor stack.
inline constexpr int64_t kMaxTomlBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxTomlDepth = 16;  // nested brackets, and parts of one dotted key

// The top table. A syntax error (among them: a key given twice, an integer beyond 64 bits, bytes
// that are not UTF-8) is the only one reported: what follows it cannot be trusted.
tl::expected<TomlTable, TomlError> ParseToml(std::string_view text);

// `text` as a TOML basic string with its quotes; invalid UTF-8 is passed on and will not parse.
std::string TomlString(std::string_view text);
// Shortest text that parses back to the same float; always recognisable as one ("3.0", "1e-05",
// "inf").
std::string TomlFloat(double value);

// What a message calls the node: "the integer 3", "the string \"x\"", "a table".
std::string DescribeNode(const TomlNode& node);

}  // namespace ulmus
