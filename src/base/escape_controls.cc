#include "base/escape_controls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace ulmus {
namespace {

struct Character {
  uint32_t code = 0;
  size_t num_bytes = 0;  // 0: the text does not begin with a character
};

// Shortest form alone, no surrogates, nothing beyond U+10FFFF (RFC 3629).
Character FirstCharacter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t num_bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < num_bytes) return {};
  uint32_t code = lead & (0xffU >> (num_bytes + 1));
  for (size_t i = 1; i < num_bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[num_bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, num_bytes};
}

bool IsHarmless(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  // Unicode categories Cc, Zl, Zp, and of Cf what hides or turns text.
  constexpr Range kEscaped[] = {{0x00, 0x08},     {0x0b, 0x1f},      {0x7f, 0x9f},
                                {0xad, 0xad},     {0x61c, 0x61c},    {0x200b, 0x200f},
                                {0x2028, 0x202e}, {0x2060, 0x206f},  {0xfeff, 0xfeff},
                                {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  return std::ranges::none_of(
      kEscaped, [=](const Range& range) { return code >= range.first && code <= range.last; });
}

}  // namespace

std::string EscapeControls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character c = FirstCharacter(text);
    const size_t num_bytes = std::max<size_t>(c.num_bytes, 1);
    if (c.num_bytes > 0 && IsHarmless(c.code)) {
      out += text.substr(0, num_bytes);
    } else if (num_bytes == 1) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(text[0]));
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c.code);
    }
    text.remove_prefix(num_bytes);
  }
  return out;
}

}  // namespace ulmus
