// What a tokenizer.json says, checked and in plain form: the input of the tables that encode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ulmus::tokenizer {

struct VocabToken {
  std::string bytes;
  int32_t id = 0;
};

// left + right -> merged, all ids of the vocabulary. The index in the list is the rank.
struct Merge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;  // looked for after all others
};

// One regular expression of the pre-tokenizer, in the syntax of the file (Oniguruma).
struct SplitRule {
  std::string pattern;
  // Text between matches: a piece of its own, or (behaviour "Removed", inverted) not allowed to be.
  bool keeps_gaps = true;
};

struct Definition {
  std::vector<VocabToken> vocab;  // by id, which may have gaps; without added tokens
  std::vector<Merge> merges;
  std::vector<AddedToken> added;  // by id
  std::vector<SplitRule> splits;  // applied one inside the other
  bool ignore_merges = false;     // a piece that is a token is that token, reachable or not
  int32_t byte_ids[256] = {};     // the token of each single byte
  int64_t vocab_size = 0;         // largest id + 1
};

inline constexpr int64_t kMaxTokenizerJsonBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 22;  // 8 x the largest in use

// Messages begin with `origin`. kInvalidArgument: a component or option that is not supported;
// kDataLoss: not JSON, or the parts contradict each other.
Result<Definition> ParseTokenizerJson(std::string_view json, std::string_view origin);

}  // namespace ulmus::tokenizer
