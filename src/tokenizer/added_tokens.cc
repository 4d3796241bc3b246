#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace ulmus::tokenizer {

AddedTokenFinder::AddedTokenFinder(std::span<const AddedToken> tokens, bool normalized) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    tokens_.push_back(token);
    starts_[static_cast<uint8_t>(token.content[0])] = true;
  }
  std::sort(tokens_.begin(), tokens_.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
}

AddedTokenFinder::Found AddedTokenFinder::Find(std::string_view text, size_t from) const {
  if (tokens_.empty()) return {};
  for (size_t i = from; i < text.size(); ++i) {
    if (!starts_[static_cast<uint8_t>(text[i])]) continue;
    if (const AddedToken* token = LongestAt(text.substr(i)))
      return {.start = i, .end = i + token->content.size(), .token = token};
  }
  return {};
}

// Narrows the sorted list byte by byte to the tokens that share a prefix with the text.
const AddedToken* AddedTokenFinder::LongestAt(std::string_view text) const {
  const AddedToken* longest = nullptr;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (size_t depth = 0; depth < text.size() && first != last; ++depth) {
    const auto byte_at = [depth](const AddedToken& token) {
      // Tokens that end here sort first, below every byte.
      return depth < token.content.size() ? static_cast<uint8_t>(token.content[depth]) : -1;
    };
    const int byte = static_cast<uint8_t>(text[depth]);
    first = std::partition_point(first, last,
                                 [&](const AddedToken& token) { return byte_at(token) < byte; });
    last = std::partition_point(first, last,
                                [&](const AddedToken& token) { return byte_at(token) <= byte; });
    if (first != last && first->content.size() == depth + 1) longest = &*first;
  }
  return longest;
}

}  // namespace ulmus::tokenizer
