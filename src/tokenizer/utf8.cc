#include "tokenizer/utf8.h"

#include <cstring>

namespace ulmus::tokenizer {
namespace {

uint8_t ByteAt(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

// What the first byte of a character says of it: how long it is, and the range of the second byte,
// which keeps out overlong forms (E0, F0), surrogates (ED) and values beyond U+10FFFF (F4).
struct Lead {
  size_t length = 0;  // 0: no character starts so
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte >= 0xC2 && byte <= 0xDF) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_min = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_max = 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_min = 0x90};
  if (byte >= 0xF1 && byte <= 0xF3) return {.length = 4};
  if (byte == 0xF4) return {.length = 4, .second_max = 0x8F};
  return {};
}

// How many bytes at the front fit one character that starts there, up to all of its bytes.
size_t FittingBytes(std::string_view bytes, const Lead& lead) {
  if (lead.length == 0 || bytes.empty()) return 0;
  size_t i = 1;
  for (; i < lead.length && i < bytes.size(); ++i) {
    const uint8_t byte = ByteAt(bytes, i);
    const bool fits =
        i == 1 ? byte >= lead.second_min && byte <= lead.second_max : byte >= 0x80 && byte <= 0xBF;
    if (!fits) break;
  }
  return i;
}

size_t CharacterLength(std::string_view bytes) {
  const Lead lead = LeadOf(ByteAt(bytes, 0));
  return FittingBytes(bytes, lead) == lead.length ? lead.length : 0;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    // Eight ASCII bytes at a time.
    uint64_t word = 0;
    while (i + sizeof(word) <= bytes.size()) {
      std::memcpy(&word, bytes.data() + i, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      i += sizeof(word);
    }
    if (i == bytes.size()) break;
    const size_t length = CharacterLength(bytes.substr(i));
    if (length == 0) break;
    i += length;
  }
  return i;
}

size_t InvalidUtf8Prefix(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size() && CharacterLength(bytes.substr(i)) == 0) ++i;
  return i;
}

bool IsUtf8CharacterStart(std::string_view bytes) {
  if (bytes.empty()) return false;
  const Lead lead = LeadOf(ByteAt(bytes, 0));
  return bytes.size() < lead.length && FittingBytes(bytes, lead) == bytes.size();
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  const auto add = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    add(code_point);
  } else if (code_point < 0x800) {
    add(0xC0 | code_point >> 6);
    add(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    add(0xE0 | code_point >> 12);
    add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  } else {
    add(0xF0 | code_point >> 18);
    add(0x80 | (code_point >> 12 & 0x3F));
    add(0x80 | (code_point >> 6 & 0x3F));
    add(0x80 | (code_point & 0x3F));
  }
}

uint32_t PopUtf8(std::string_view& text) {
  const uint8_t first = ByteAt(text, 0);
  const size_t length = LeadOf(first).length;
  uint32_t code_point = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (ByteAt(text, i) & 0x3Fu);
  text.remove_prefix(length);
  return code_point;
}

}  // namespace ulmus::tokenizer
