#include "base/escape_controls.h"

#include <gtest/gtest.h>

namespace ulmus {
namespace {

TEST(EscapeControls, WritesOutWhatATerminalObeysOrHides) {
  const struct {
    std::string_view text, expected;
  } rows[] = {
      {"", ""},
      {"plain text\twith\nlines", "plain text\twith\nlines"},
      {"schön, 重み, وزن, 🌳, \\u202e", "schön, 重み, وزن, 🌳, \\u202e"},
      {"\x1b[2J", "\\x1b[2J"},
      {"a\rb\x7f\b", "a\\x0db\\x7f\\x08"},
      {std::string_view("a\0b", 3), "a\\x00b"},
      {"x\u202egpj.exe", "x\\u202egpj.exe"},
      {"\u2066a\u2069\u200f\u061c", "\\u2066a\\u2069\\u200f\\u061c"},
      {"\u0085\u009b31m", "\\u0085\\u009b31m"},
      {"\u200b\ufeff\u2028", "\\u200b\\ufeff\\u2028"},
      {"\U000e0041", "\\ue0041"},
      // No UTF-8: a lone byte, an overlong '/', a surrogate, beyond the last, cut off.
      {"\xff", "\\xff"},
      {"\xc0\xaf", "\\xc0\\xaf"},
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
      {"a\xe2\x80", "a\\xe2\\x80"},
      {"\xe2(", "\\xe2("},
  };
  for (const auto& row : rows) EXPECT_EQ(EscapeControls(row.text), row.expected);
}

}  // namespace
}  // namespace ulmus
