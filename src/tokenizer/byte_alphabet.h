// The alphabet in which byte-level vocabularies are written down: each byte is one printable
// character. Source: OpenAI GPT-2 encoder.py, bytes_to_unicode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ulmus::tokenizer {

// The character of a byte: itself where that is printable Latin-1, else the next of U+0100...
uint32_t ByteToCharacter(uint8_t byte);

// The bytes of a token written in the alphabet; nullopt if it has a character that is not in it.
// `token` must be valid UTF-8.
std::optional<std::string> BytesOfToken(std::string_view token);

}  // namespace ulmus::tokenizer
