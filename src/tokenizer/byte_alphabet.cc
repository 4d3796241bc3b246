#include "tokenizer/byte_alphabet.h"

#include <array>

#include "tokenizer/utf8.h"

namespace ulmus::tokenizer {
namespace {

constexpr bool IsPrintable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

constexpr uint32_t kFirstSubstitute = 0x100;
constexpr uint32_t kNumSubstitutes = 68;

struct Alphabet {
  std::array<uint32_t, 256> character{};
  std::array<int16_t, kFirstSubstitute + kNumSubstitutes> byte{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  uint32_t substitute = kFirstSubstitute;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    alphabet.character[byte] = IsPrintable(byte) ? byte : substitute++;
    alphabet.byte[alphabet.character[byte]] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

uint32_t ByteToCharacter(uint8_t byte) { return kAlphabet.character[byte]; }

std::optional<std::string> BytesOfToken(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const uint32_t character = PopUtf8(token);
    if (character >= kAlphabet.byte.size() || kAlphabet.byte[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[character]);
  }
  return bytes;
}

}  // namespace ulmus::tokenizer
