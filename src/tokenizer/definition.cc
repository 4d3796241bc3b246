#include "tokenizer/definition.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace ulmus::tokenizer {
namespace {

using Json = nlohmann::json;

// Gpt2 and its kin name no pattern: `ByteLevel` with use_regex stands for this one.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr int kMaxDepth = 16;  // the deepest real file has 6 levels

// The two large lists of a file, taken out while it is read, and the small rest as a tree.
struct RawFile {
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  Json rest;
  Status error;
};

// Sees every event of the parser: vocabulary and merges never become a tree, which would take ten
// times their size.
class FileReader {
 public:
  explicit FileReader(RawFile& raw) : raw_(raw) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) return Fail("is nested deeper than {} levels", kMaxDepth);
    using Event = Json::parse_event_t;
    if (event == Event::key) {
      path_.resize(static_cast<size_t>(depth));
      path_.back() = parsed.get_ref<const std::string&>();
      return !Within("vocab", 3);
    }
    if (event == Event::value && depth == 3 && Within("vocab", 3)) return Vocab(parsed);
    if (depth >= 3 && Within("merges", 2)) return MergeEvent(depth, event, parsed);
    if (event == Event::object_end || event == Event::array_end) {
      path_.resize(std::min(path_.size(), static_cast<size_t>(depth)));
    }
    return true;
  }

 private:
  // Whether the current key path is model.<name>, with `size` keys in all.
  bool Within(std::string_view name, size_t size) const {
    return path_.size() == size && path_[0] == "model" && path_[1] == name;
  }

  template <class... Args>
  bool Fail(fmt::format_string<Args...> format, Args&&... args) {
    if (raw_.error.ok()) raw_.error = DataLossError(format, std::forward<Args>(args)...);
    return false;
  }

  bool Vocab(const Json& value) {
    if (!value.is_number_integer()) return Fail("vocab: token `{}` has no integer id", path_[2]);
    raw_.vocab.emplace_back(path_[2], value.get<int64_t>());
    return true;  // it has no key to be stored under
  }

  // A merge is "a b" or ["a", "b"].
  bool MergeEvent(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::array_start) {
      pair_.clear();
      return depth == 3;
    }
    if (event == Event::array_end && depth == 3) {
      if (pair_.size() != 2) return Fail("merge {} has {} parts, expected 2", Rank(), pair_.size());
      raw_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      return false;
    }
    if (event != Event::value || !parsed.is_string()) return Fail("merge {} is no text", Rank());
    const auto& text = parsed.get_ref<const std::string&>();
    if (depth == 4) {
      pair_.push_back(text);
      return false;
    }
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      return Fail("merge {}, `{}`, is not two parts with one space between", Rank(), text);
    raw_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return false;
  }

  size_t Rank() const { return raw_.merges.size(); }

  RawFile& raw_;
  std::vector<std::string> path_;
  std::vector<std::string> pair_;
};

Result<RawFile> ReadRaw(std::string_view text) {
  RawFile raw;
  FileReader reader(raw);
  const auto callback = [&reader](int depth, Json::parse_event_t event, Json& parsed) {
    return reader(depth, event, parsed);
  };
  try {
    raw.rest = Json::parse(text, callback);
  } catch (const Json::exception& error) {
    return DataLossError("not valid JSON: {}", error.what());
  }
  if (!raw.error.ok()) return raw.error;
  if (!raw.rest.is_object()) return DataLossError("the file is no JSON object");
  return raw;
}

// --- Components

Status Unsupported(std::string_view what, std::string_view why) {
  return InvalidArgumentError("{} is not supported: {}", what, why);
}

std::string Show(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 120);
}

// An option that is absent, null or one of `harmless` changes nothing; any other would.
Status ExpectHarmless(const Json& object, const char* key, std::initializer_list<Json> harmless,
                      std::string_view where, std::string_view why) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return {};
  if (std::find(harmless.begin(), harmless.end(), *it) != harmless.end()) return {};
  return Unsupported(fmt::format("{}.{} = {}", where, key, Show(*it)), why);
}

Status ExpectKeys(const Json& object, std::initializer_list<std::string_view> known,
                  std::string_view where) {
  if (!object.is_object()) return DataLossError("{} is no JSON object", where);
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      return Unsupported(fmt::format("{}.{} = {}", where, key, Show(value)),
                         "this program does not know the option");
  }
  return {};
}

std::string TypeOf(const Json& component) {
  const auto it = component.is_object() ? component.find("type") : component.end();
  return component.is_object() && it != component.end() && it->is_string() ? it->get<std::string>()
                                                                           : "";
}

Result<bool> BoolOf(const Json& object, const char* key, bool otherwise, std::string_view where) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return otherwise;
  if (!it->is_boolean()) return DataLossError("{}.{} = {} is no boolean", where, key, Show(*it));
  return it->get<bool>();
}

Status AddByteLevel(const Json& component, Definition& definition) {
  constexpr std::string_view kWhere = "pre_tokenizer ByteLevel";
  TRY(ExpectKeys(component, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, kWhere));
  // The library's own default is true, for which Encode would add a character to the text.
  if (TRY(BoolOf(component, "add_prefix_space", true, kWhere)))
    return Unsupported("pre_tokenizer ByteLevel.add_prefix_space = true",
                       "decoding would not give the text back");
  if (TRY(BoolOf(component, "use_regex", true, kWhere)))
    definition.splits.push_back({.pattern = std::string(kByteLevelPattern), .keeps_gaps = true});
  return {};
}

Status AddSplit(const Json& component, Definition& definition) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  TRY(ExpectKeys(component, {"type", "pattern", "behavior", "invert"}, kWhere));
  const auto pattern = component.find("pattern");
  if (pattern == component.end() || !pattern->is_object() || !pattern->contains("Regex") ||
      !pattern->at("Regex").is_string())
    return Unsupported("pre_tokenizer Split without pattern.Regex", "only patterns are");
  const auto found = component.find("behavior");
  const std::string behavior =
      found != component.end() && found->is_string() ? found->get<std::string>() : std::string();
  const bool invert = TRY(BoolOf(component, "invert", false, kWhere));
  const bool removed = behavior == "Removed" && invert;
  if (!removed && behavior != "Isolated") {
    return Unsupported(
        fmt::format("pre_tokenizer Split.behavior = \"{}\", invert = {}", behavior, invert),
        "only Isolated, and Removed with invert, keep all of the text");
  }
  definition.splits.push_back(
      {.pattern = pattern->at("Regex").get<std::string>(), .keeps_gaps = !removed});
  return {};
}

// Split*, ByteLevel: alone or in a Sequence, ByteLevel last.
Status ReadPreTokenizer(const Json& component, Definition& definition) {
  std::vector<Json> stages;
  if (TypeOf(component) == "Sequence") {
    const auto list = component.find("pretokenizers");
    if (list == component.end() || !list->is_array())
      return DataLossError("pre_tokenizer Sequence has no list `pretokenizers`");
    stages.assign(list->begin(), list->end());
  } else {
    stages.push_back(component);
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string type = TypeOf(stages[i]);
    const bool last = i + 1 == stages.size();
    if (type == "ByteLevel" && last) {
      TRY(AddByteLevel(stages[i], definition));
    } else if (type == "Split" && !last) {
      TRY(AddSplit(stages[i], definition));
    } else {
      return Unsupported(fmt::format("pre_tokenizer {} (stage {} of {})",
                                     type.empty() ? Show(stages[i]) : type, i + 1, stages.size()),
                         "expected any number of Split, then ByteLevel");
    }
  }
  if (stages.empty()) return Unsupported("an empty pre_tokenizer", "expected ByteLevel");
  return {};
}

Status CheckComponents(const Json& file) {
  TRY(ExpectKeys(file,
                 {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                  "post_processor", "decoder", "model"},
                 "the file"));
  for (const char* key : {"truncation", "padding"}) {
    TRY(ExpectHarmless(file, key, {}, "the file", "it would change encodings; set it to null"));
  }
  if (const auto it = file.find("normalizer"); it != file.end() && !it->is_null())
    return Unsupported(fmt::format("normalizer {}", TypeOf(*it)),
                       "decoding would not give the text back");
  if (const auto it = file.find("post_processor"); it != file.end() && !it->is_null()) {
    if (TypeOf(*it) != "ByteLevel")
      return Unsupported(fmt::format("post_processor {}", TypeOf(*it)),
                         "tokens are added to a text by its user, not by the tokenizer");
  }
  const auto decoder = file.find("decoder");
  if (decoder == file.end() || TypeOf(*decoder) != "ByteLevel")
    return Unsupported(fmt::format("decoder {}", decoder == file.end() ? "(none)" : Show(*decoder)),
                       "expected ByteLevel");
  return {};
}

// --- Vocabulary

Status CheckId(int64_t id, std::string_view token) {
  if (id >= 0 && id < kMaxVocabSize) return {};
  return DataLossError("token `{}` has id {}; expected 0 to {}", token, id, kMaxVocabSize - 1);
}

Status ReadAddedTokens(const Json& file, Definition& definition) {
  const auto list = file.find("added_tokens");
  if (list == file.end() || list->is_null()) return {};
  if (!list->is_array()) return DataLossError("added_tokens is no list");
  std::set<int32_t> ids;
  std::set<std::string> contents;
  for (const Json& token : *list) {
    TRY(ExpectKeys(token,
                   {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"},
                   "added_tokens[]"));
    const auto content = token.find("content");
    const auto id = token.find("id");
    if (content == token.end() || !content->is_string() || id == token.end() ||
        !id->is_number_integer() || content->get<std::string>().empty())
      return DataLossError("added_tokens[]: {} lacks content or id", Show(token));
    const std::string where = fmt::format("added_tokens[`{}`]", content->get<std::string>());
    for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
      TRY(ExpectHarmless(token, flag, {false}, where, "tokens are matched as they are written"));
    }
    TRY(CheckId(id->get<int64_t>(), content->get<std::string>()));
    const bool special = TRY(BoolOf(token, "special", false, where));
    const bool normalized = TRY(BoolOf(token, "normalized", true, where));
    definition.added.push_back({.content = content->get<std::string>(),
                                .id = id->get<int32_t>(),
                                .special = special,
                                .normalized = normalized});
    if (!ids.insert(definition.added.back().id).second)
      return DataLossError("{}: its id {} is taken by another", where, definition.added.back().id);
    if (!contents.insert(definition.added.back().content).second)
      return DataLossError("{}: listed twice", where);
  }
  std::sort(definition.added.begin(), definition.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return {};
}

// Ids by the text of the file, which merges refer to.
using IdByText = std::unordered_map<std::string_view, int32_t>;

Result<IdByText> ReadVocab(const RawFile& raw, Definition& definition) {
  IdByText ids;
  ids.reserve(raw.vocab.size());
  std::unordered_map<int32_t, std::string_view> owners;
  std::unordered_map<int32_t, std::string_view> added;
  for (const AddedToken& token : definition.added) added.emplace(token.id, token.content);
  for (const auto& [text, wide_id] : raw.vocab) {
    TRY(CheckId(wide_id, text));
    const auto id = static_cast<int32_t>(wide_id);
    if (!ids.emplace(text, id).second) return DataLossError("vocab: token `{}` stands twice", text);
    if (const auto [it, fresh] = owners.emplace(id, text); !fresh)
      return DataLossError("vocab: id {} is given to `{}` and to `{}`", id, it->second, text);
    if (const auto it = added.find(id); it != added.end()) {
      // Vocabularies often list added tokens too, as they are written.
      if (it->second != text)
        return DataLossError("id {} is `{}` in vocab, but `{}` in added_tokens", id, text,
                             it->second);
      continue;
    }
    // A token outside the alphabet of bytes stands for itself; no text is encoded to it.
    definition.vocab.push_back({.bytes = BytesOfToken(text).value_or(text), .id = id});
  }
  for (const AddedToken& token : definition.added) {
    if (const auto it = ids.find(token.content); it != ids.end() && it->second != token.id)
      return DataLossError("`{}` has id {} in vocab, but {} in added_tokens", token.content,
                           it->second, token.id);
  }
  std::sort(definition.vocab.begin(), definition.vocab.end(),
            [](const VocabToken& a, const VocabToken& b) { return a.id < b.id; });
  return ids;
}

Status ReadByteIds(const IdByText& ids, Definition& definition) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendUtf8(ByteToCharacter(static_cast<uint8_t>(byte)), text);
    const auto it = ids.find(text);
    if (it == ids.end())
      return DataLossError("vocab has no token for byte {:#04x} (`{}`), so text could get lost",
                           byte, text);
    definition.byte_ids[byte] = it->second;
  }
  return {};
}

Status ReadMerges(const RawFile& raw, const IdByText& ids, Definition& definition) {
  std::set<int32_t> special;
  for (const AddedToken& token : definition.added) {
    if (token.special) special.insert(token.id);
  }
  std::unordered_map<uint64_t, size_t> seen;
  seen.reserve(raw.merges.size());
  definition.merges.reserve(raw.merges.size());
  for (size_t rank = 0; rank < raw.merges.size(); ++rank) {
    const std::string& left = raw.merges[rank].first;
    const std::string& right = raw.merges[rank].second;
    const auto id_of = [&](const std::string& text) -> Result<int32_t> {
      const auto it = ids.find(text);
      if (it != ids.end()) return it->second;
      return DataLossError("merge {} (`{}` `{}`): vocab has no token `{}`", rank, left, right,
                           text);
    };
    const Merge merge = {
        .left = TRY(id_of(left)), .right = TRY(id_of(right)), .merged = TRY(id_of(left + right))};
    const uint64_t pair =
        static_cast<uint64_t>(merge.left) << 32 | static_cast<uint32_t>(merge.right);
    if (const auto [it, fresh] = seen.emplace(pair, rank); !fresh)
      return DataLossError("merges {} and {} are the same (`{}` `{}`)", it->second, rank, left,
                           right);
    if (special.contains(merge.merged))
      return DataLossError("merge {} makes the special token `{}` out of plain text", rank,
                           left + right);
    definition.merges.push_back(merge);
  }
  return {};
}

Status ReadModel(const RawFile& raw, Definition& definition) {
  const auto it = raw.rest.find("model");
  if (it == raw.rest.end() || !it->is_object()) return DataLossError("the file has no model");
  const Json& model = *it;
  // Old files leave the type out.
  if (model.contains("type") && TypeOf(model) != "BPE")
    return Unsupported(fmt::format("model {}", TypeOf(model)), "expected BPE");
  TRY(ExpectKeys(model,
                 {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                  "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"},
                 "model"));
  TRY(ExpectHarmless(model, "dropout", {0, 0.0}, "model", "encoding must be repeatable"));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    TRY(ExpectHarmless(model, key, {""}, "model", "byte-level vocabularies have none"));
  }
  TRY(ExpectHarmless(model, "byte_fallback", {false}, "model",
                     "a byte-level vocabulary has every byte"));
  if (!model.contains("vocab") || !model["vocab"].is_object())
    return DataLossError("model.vocab is no JSON object");
  if (!model.contains("merges") || !model["merges"].is_array())
    return DataLossError("model.merges is no list");
  definition.ignore_merges = TRY(BoolOf(model, "ignore_merges", false, "model"));
  const IdByText ids = TRY(ReadVocab(raw, definition));
  TRY(ReadByteIds(ids, definition));
  return ReadMerges(raw, ids, definition);
}

Result<Definition> Parse(std::string_view json) {
  if (static_cast<int64_t>(json.size()) > kMaxTokenizerJsonBytes)
    return OutOfRangeError("{} bytes; a tokenizer.json may have {}", json.size(),
                           kMaxTokenizerJsonBytes);
  const RawFile raw = TRY(ReadRaw(json));
  TRY(CheckComponents(raw.rest));
  Definition definition;
  const auto pre_tokenizer = raw.rest.find("pre_tokenizer");
  if (pre_tokenizer == raw.rest.end() || pre_tokenizer->is_null())
    return Unsupported("a file without pre_tokenizer", "expected ByteLevel");
  TRY(ReadPreTokenizer(*pre_tokenizer, definition));
  TRY(ReadAddedTokens(raw.rest, definition));
  TRY(ReadModel(raw, definition));
  for (const VocabToken& token : definition.vocab)
    definition.vocab_size = std::max(definition.vocab_size, int64_t{token.id} + 1);
  for (const AddedToken& token : definition.added)
    definition.vocab_size = std::max(definition.vocab_size, int64_t{token.id} + 1);
  return definition;
}

}  // namespace

Result<Definition> ParseTokenizerJson(std::string_view json, std::string_view origin) {
  Result<Definition> definition = Parse(json);
  if (!definition.ok()) return definition.status().WithContext(origin);
  return definition;
}

}  // namespace ulmus::tokenizer
