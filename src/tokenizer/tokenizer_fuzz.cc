// Fuzzes the reader of tokenizer.json and, with whatever it takes, the encoder. The first byte
// chooses whether the rest is a file, or a list of merges for a small valid one and a text to
// encode.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using Json = nlohmann::json;
using ulmus::tokenizer::Tokenizer;

void CheckRoundTrip(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.Encode(text, {.special = special});
    if (!ids.ok()) return;  // a pattern that leaves text out
    const auto decoded = tokenizer.Decode(*ids);
    CHECK(decoded.ok() && *decoded == text, "{} bytes do not come back", text.size());
    for (const int32_t id : *ids)
      CHECK(special || !tokenizer.IsSpecial(id), "plain text gave special token {}", id);
  }
}

// Random merges over bytes and over what earlier merges made.
std::string FileOfMerges(std::string_view choices) {
  std::vector<std::string> tokens;
  Json vocab = Json::object();
  Json merges = Json::array();
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    ulmus::tokenizer::AppendUtf8(ulmus::tokenizer::ByteToCharacter(static_cast<uint8_t>(byte)),
                                 text);
    tokens.push_back(text);
    vocab[text] = byte;
  }
  for (size_t i = 0; i + 1 < choices.size(); i += 2) {
    const std::string& left = tokens[static_cast<uint8_t>(choices[i]) % tokens.size()];
    const std::string& right = tokens[tokens.size() - 1 - static_cast<uint8_t>(choices[i + 1])];
    if (vocab.contains(left + right)) continue;
    vocab[left + right] = tokens.size();
    merges.push_back(Json::array({left, right}));
    tokens.push_back(left + right);
  }
  return Json({{"added_tokens",
                Json::array({{{"id", 9000}, {"content", "<|e|>"}, {"special", true}}})},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
               {"decoder", {{"type", "ByteLevel"}}},
               {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}})
      .dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto tokenizer = Tokenizer::FromJson(input, "fuzz");
    if (tokenizer.ok()) CheckRoundTrip(*tokenizer, input);
    return 0;
  }
  const size_t split = input.size() / 2;
  const auto tokenizer = Tokenizer::FromJson(FileOfMerges(input.substr(0, split)), "merges");
  CHECK(tokenizer.ok(), "{}", tokenizer.status().message());
  CheckRoundTrip(*tokenizer, input.substr(split));
  return 0;
}
