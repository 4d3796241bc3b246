// Byte-level BPE as a Hugging Face tokenizer.json describes it: text to token ids and back. The
// encoding equals that of the `tokenizers` library; where they differ on purpose is in README.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::tokenizer {

struct EncodeOptions {
  // Whether a special token written out in the text (<|endoftext|>) becomes its id. Off for any
  // text that was not written by the program itself: a document that quotes the token would
  // otherwise end there. Added tokens that are not special always become their ids.
  bool special = false;
};

// Immutable once loaded: every method may be called from any thread.
class Tokenizer {
 public:
  // kInvalidArgument names the component that is not understood, kDataLoss what is inconsistent;
  // nothing is ignored that would change an encoding.
  static Result<Tokenizer> Load(const Path& tokenizer_json);
  // `origin` stands for the file in messages.
  static Result<Tokenizer> FromJson(std::string_view json, std::string_view origin);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Largest id + 1: every id is below it, though not every number below it need be an id.
  int64_t vocab_size() const;
  // The ids of <|endoftext|> and <|pad|>, if the vocabulary has them as special tokens.
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  // The id of an added token, or of a token given by its bytes. kNotFound suggests a near name.
  Result<int32_t> IdOf(std::string_view token) const;
  bool IsSpecial(int32_t id) const;
  // "sha256:<hex>" of everything that decides an encoding: equal for two files that differ in
  // layout only.
  const std::string& fingerprint() const;

  // Appends the ids of `text`; no BOS or EOS. Any bytes are taken: stretches that are not UTF-8
  // are encoded byte by byte, so that Decode gives them back. Time is O(n log n), whatever the
  // text. On error `ids` holds what it held before.
  Status Encode(std::string_view text, std::vector<int32_t>& ids, EncodeOptions options = {}) const;
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const;

  // The bytes of the tokens, one after the other, special ones as they are written. A cut sequence
  // of tokens may end inside a character: see DecodeStream. kOutOfRange for a number that is no id.
  Result<std::string> Decode(std::span<const int32_t> ids) const;
  // The bytes of one token; they live as long as the tokenizer.
  Result<std::string_view> TokenBytes(int32_t id) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes a growing sequence for a reader of text: a character whose bytes are spread over several
// tokens is held back until it is complete. One thread.
class DecodeStream {
 public:
  // `tokenizer` must outlive the stream.
  explicit DecodeStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Text that is complete with this token, perhaps "". Always valid UTF-8: bytes that can never
  // become a character give U+FFFD.
  Result<std::string> Add(int32_t id);
  // What is left, once no token follows: "" or U+FFFD.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;  // the start of one character, at most 3 bytes
};

}  // namespace ulmus::tokenizer
