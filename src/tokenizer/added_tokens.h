// Finds added tokens written out in a text.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/definition.h"

namespace ulmus::tokenizer {

class AddedTokenFinder {
 public:
  // Keeps copies of the tokens for which `normalized` is as given.
  AddedTokenFinder(std::span<const AddedToken> tokens, bool normalized);

  struct Found {
    size_t start = 0;
    size_t end = 0;
    const AddedToken* token = nullptr;  // null: none
  };
  // The leftmost token at or behind `from`, the longest of those.
  Found Find(std::string_view text, size_t from) const;

 private:
  const AddedToken* LongestAt(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  bool starts_[256] = {};           // first bytes of tokens
};

}  // namespace ulmus::tokenizer
