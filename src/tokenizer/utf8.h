// Which bytes are UTF-8 (RFC 3629: no surrogates, nothing overlong, nothing above U+10FFFF).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ulmus::tokenizer {

// Length of the longest valid prefix.
size_t ValidUtf8Prefix(std::string_view bytes);

// Length of the stretch at the front that holds no valid character (0 if one starts there).
size_t InvalidUtf8Prefix(std::string_view bytes);

// True if `bytes` is the beginning of a longer valid character: more bytes could complete it.
bool IsUtf8CharacterStart(std::string_view bytes);

// Appends the character; `code_point` is a Unicode scalar value.
void AppendUtf8(uint32_t code_point, std::string& out);

// Reads the character at the front of valid UTF-8 and removes it from `text`.
uint32_t PopUtf8(std::string_view& text);

}  // namespace ulmus::tokenizer
