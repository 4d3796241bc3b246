#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/edit_distance.h"
#include "base/hash.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/definition.h"
#include "tokenizer/pattern.h"
#include "tokenizer/utf8.h"

namespace ulmus::tokenizer {
namespace {

constexpr std::string_view kEosToken = "<|endoftext|>";
constexpr std::string_view kPadToken = "<|pad|>";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// What one call of Encode works with, reused by later calls.
struct Scratch {
  Pattern::Scratch match;
  Bpe::Cache cache;
  std::vector<std::vector<size_t>> ends;  // of pieces, one list per pattern
};

// Scratch for as many calls as run at once.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> Take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void Return(std::unique_ptr<Scratch> scratch) {
    constexpr size_t kMaxKept = size_t{1} << 20;
    for (std::vector<size_t>& ends : scratch->ends) {
      if (ends.capacity() > kMaxKept) ends = {};  // one huge text should not hold memory for ever
    }
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;  // guards free_
  std::vector<std::unique_ptr<Scratch>> free_;
};

// Hash of all that decides an encoding; fields carry their length, so that none runs into the next.
std::string Fingerprint(const Definition& definition) {
  Sha256 hash;
  const auto add = [&hash](std::string_view field) {
    hash.Update(fmt::format("{}:", field.size()));
    hash.Update(field);
  };
  add("ulmus tokenizer 1");
  add(definition.ignore_merges ? "ignore_merges" : "merges");
  for (const SplitRule& rule : definition.splits)
    add(fmt::format("split {} {}", rule.keeps_gaps, rule.pattern));
  for (const VocabToken& token : definition.vocab)
    add(fmt::format("token {} {}", token.id, token.bytes));
  for (const AddedToken& token : definition.added)
    add(fmt::format("added {} {} {} {}", token.id, token.special, token.normalized, token.content));
  for (const Merge& merge : definition.merges)
    add(fmt::format("merge {} {} {}", merge.left, merge.right, merge.merged));
  return "sha256:" + hash.hex();
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(Definition from)
      : definition(std::move(from)),
        bpe(definition),
        plain_finder(definition.added, /*normalized=*/false),
        normalized_finder(definition.added, /*normalized=*/true),
        fingerprint(Fingerprint(definition)) {
    token_bytes.resize(static_cast<size_t>(definition.vocab_size));
    for (const VocabToken& token : definition.vocab) Register(token.id, token.bytes);
    for (const AddedToken& token : definition.added) Register(token.id, token.content);
  }

  void Register(int32_t id, std::string_view bytes) {
    token_bytes[static_cast<size_t>(id)] = bytes;
    ids_by_bytes[bytes] = id;  // an added token wins over one of the vocabulary
  }

  // Added tokens outside, then stretches of UTF-8, then pieces.
  Status EncodeAdded(std::string_view text, bool normalized, bool special, Scratch& scratch,
                     std::vector<int32_t>& ids) const {
    const AddedTokenFinder& finder = normalized ? normalized_finder : plain_finder;
    size_t start = 0;
    size_t from = 0;
    while (true) {
      const AddedTokenFinder::Found found = finder.Find(text, from);
      if (found.token != nullptr && found.token->special && !special) {
        from = found.end;  // its text is like any other, and no token begins inside it
        continue;
      }
      const size_t end = found.token == nullptr ? text.size() : found.start;
      const std::string_view between = text.substr(start, end - start);
      TRY(normalized ? EncodeText(between, scratch, ids)
                     : EncodeAdded(between, /*normalized=*/true, special, scratch, ids));
      if (found.token == nullptr) return {};
      ids.push_back(found.token->id);
      start = from = found.end;
    }
  }

  Status EncodeText(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const {
    while (!text.empty()) {
      const size_t valid = ValidUtf8Prefix(text);
      TRY(EncodePieces(text.substr(0, valid), 0, scratch, ids));
      text.remove_prefix(valid);
      // Bytes that are no text are one piece.
      const size_t invalid = InvalidUtf8Prefix(text);
      if (invalid > 0) bpe.Encode(text, 0, invalid, scratch.cache, ids);
      text.remove_prefix(invalid);
    }
    return {};
  }

  Status EncodePieces(std::string_view text, size_t level, Scratch& scratch,
                      std::vector<int32_t>& ids) const {
    if (text.empty()) return {};
    if (level == patterns.size()) {
      bpe.Encode(text, 0, text.size(), scratch.cache, ids);
      return {};
    }
    std::vector<size_t>& ends = scratch.ends[level];
    ends.clear();
    TRY(patterns[level].Split(text, scratch.match, ends));
    size_t start = 0;
    for (const size_t end : ends) {
      if (level + 1 == patterns.size()) {
        bpe.Encode(text, start, end, scratch.cache, ids);
      } else {
        TRY(EncodePieces(text.substr(start, end - start), level + 1, scratch, ids));
      }
      start = end;
    }
    return {};
  }

  std::optional<int32_t> SpecialId(std::string_view content) const {
    for (const AddedToken& token : definition.added) {
      if (token.special && token.content == content) return token.id;
    }
    return std::nullopt;
  }

  Definition definition;
  std::vector<Pattern> patterns;
  Bpe bpe;
  AddedTokenFinder plain_finder;
  AddedTokenFinder normalized_finder;
  std::string fingerprint;
  std::vector<std::string_view> token_bytes;  // by id; empty: no token
  std::unordered_map<std::string_view, int32_t> ids_by_bytes;
  mutable ScratchPool scratches;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Load(const Path& tokenizer_json) {
  const std::string text = TRY(ReadFile(tokenizer_json, kMaxTokenizerJsonBytes));
  return FromJson(text, tokenizer_json.string());
}

Result<Tokenizer> Tokenizer::FromJson(std::string_view json, std::string_view origin) {
  Definition definition = TRY(ParseTokenizerJson(json, origin));
  std::vector<Pattern> patterns;
  for (const SplitRule& rule : definition.splits) {
    Result<Pattern> pattern = Pattern::Compile(rule);
    if (!pattern.ok()) return pattern.status().WithContext(origin);
    patterns.push_back(std::move(*pattern));
  }
  auto impl = std::make_unique<Impl>(std::move(definition));
  impl->patterns = std::move(patterns);
  return Tokenizer(std::move(impl));
}

int64_t Tokenizer::vocab_size() const { return impl_->definition.vocab_size; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->SpecialId(kEosToken); }
std::optional<int32_t> Tokenizer::pad_id() const { return impl_->SpecialId(kPadToken); }
const std::string& Tokenizer::fingerprint() const { return impl_->fingerprint; }

Result<int32_t> Tokenizer::IdOf(std::string_view token) const {
  if (const auto it = impl_->ids_by_bytes.find(token); it != impl_->ids_by_bytes.end())
    return it->second;
  std::vector<std::string> names;
  for (const AddedToken& added : impl_->definition.added) names.push_back(added.content);
  const std::optional<std::string> near = NearestKey(token, names);
  return NotFoundError("the tokenizer has no token `{}`{}", token,
                       near ? fmt::format("; did you mean `{}`?", *near) : "");
}

bool Tokenizer::IsSpecial(int32_t id) const {
  const auto& added = impl_->definition.added;
  return std::any_of(added.begin(), added.end(),
                     [id](const AddedToken& token) { return token.id == id && token.special; });
}

Status Tokenizer::Encode(std::string_view text, std::vector<int32_t>& ids,
                         EncodeOptions options) const {
  const size_t before = ids.size();
  std::unique_ptr<Scratch> scratch = impl_->scratches.Take();
  scratch->ends.resize(impl_->patterns.size());
  const Status status =
      impl_->EncodeAdded(text, /*normalized=*/false, options.special, *scratch, ids);
  impl_->scratches.Return(std::move(scratch));
  if (!status.ok()) ids.resize(before);
  return status;
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::vector<int32_t> ids;
  TRY(Encode(text, ids, options));
  return ids;
}

Result<std::string_view> Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size() || impl_->token_bytes[static_cast<size_t>(id)].empty())
    return OutOfRangeError("{} is no token id; the tokenizer's ids are below {}", id, vocab_size());
  return impl_->token_bytes[static_cast<size_t>(id)];
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += TRY(TokenBytes(id));
  return text;
}

Result<std::string> DecodeStream::Add(int32_t id) {
  pending_ += TRY(tokenizer_.TokenBytes(id));
  std::string text;
  std::string_view rest = pending_;
  while (true) {
    const size_t valid = ValidUtf8Prefix(rest);
    text += rest.substr(0, valid);
    rest.remove_prefix(valid);
    if (rest.empty() || IsUtf8CharacterStart(rest)) break;
    text += kReplacement;
    rest.remove_prefix(1);
  }
  pending_ = std::string(rest);
  return text;
}

std::string DecodeStream::Finish() {
  std::string text(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  return text;
}

}  // namespace ulmus::tokenizer
