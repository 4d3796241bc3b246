#include "data/index.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "data/fixed_length.h"

namespace ulmus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kVersion = "1";
// Counts beyond are no token counts; sums of them stay inside int64.
constexpr int64_t kMaxTokens = int64_t{1} << 60;

std::string NumPyName(DType dtype) {
  return fmt::format("{}int{}", IsUnsignedInt(dtype) ? "u" : "", 8 * SizeBytes(dtype));
}

std::optional<DType> FromNumPyName(std::string_view name) {
  for (DType dtype : kAllDTypes) {
    if (IsInt(dtype) && NumPyName(dtype) == name) return dtype;
  }
  return std::nullopt;
}

// Takes the events of the parser; everything below an unknown key is passed over. The index is an
// object whose `files` is an array of objects of plain values.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Index index;
  std::string version;
  std::string error;  // why the parse was stopped

  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(int64_t value) override { return Number(value); }
  bool number_unsigned(uint64_t value) override {
    return Number(value > static_cast<uint64_t>(INT64_MAX) ? -1 : static_cast<int64_t>(value));
  }
  bool number_float(double, const std::string&) override { return Wrong("a fraction"); }
  bool binary(nlohmann::json::binary_t&) override { return Value(); }
  bool string(std::string& value) override {
    if (!WithinIndex()) return Value();
    if (depth_ == 1 && key_ == "format_version") return Take("format_version", version, value);
    if (depth_ == 1 && key_ == "dtype") return TakeDType(value);
    if (depth_ == 1 && key_ == "tokenizer") return Take("tokenizer", index.tokenizer, value);
    if (depth_ == 1 && key_ == "fingerprint") return Take("fingerprint", index.fingerprint, value);
    if (InFile() && key_ == "path") return Take("path", index.files.back().path, value);
    if (InFile() && key_ == "label") return Take("label", index.files.back().label, value);
    return Wrong("a text");
  }
  bool start_object(std::size_t) override {
    if (depth_ == 0) {
      top_is_object_ = true;
    } else if (in_files_ && depth_ == 2) {
      index.files.emplace_back();
      file_keys_ = 0;
    } else if (WithinIndex() && Known()) {
      return Fail("`{}` is an object");
    }
    ++depth_;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1 || InFile()) key_ = name.substr(0, kMaxKey);
    return true;
  }
  bool end_object() override {
    if (InFile() && file_keys_ != kAllFileKeys)
      return Fail("a file lacks one of its keys (`{}` was last)");
    return Leave();
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return Fail("the top of the file is an array");
    if (depth_ == 1 && key_ == "files") {
      if (had_files_) return Fail("`{}` is there twice");
      had_files_ = in_files_ = true;
    } else if (WithinIndex() && Known()) {
      return Fail("`{}` is an array");
    }
    ++depth_;
    return true;
  }
  bool end_array() override {
    if (depth_ == 2) in_files_ = false;
    return Leave();
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    error = fmt::format("not JSON from byte {} on (cut or damaged)", position);
    return false;
  }
  bool complete() const { return had_files_ && top_keys_ == kAllTopKeys; }

 private:
  static constexpr size_t kMaxKey = 64;
  static constexpr std::string_view kTopKeys[] = {
      "format_version",  "sequence_length", "dtype",      "tokenizer",
      "total_instances", "total_tokens",    "fingerprint"};
  static constexpr std::string_view kFileKeys[] = {"path", "label", "n_tokens", "n_instances",
                                                   "instance_offset"};
  static constexpr uint32_t kAllTopKeys = (1u << std::size(kTopKeys)) - 1;
  static constexpr uint32_t kAllFileKeys = (1u << std::size(kFileKeys)) - 1;

  bool InFile() const { return in_files_ && depth_ == 3; }
  bool WithinIndex() const { return top_is_object_ && (depth_ == 1 || InFile()); }
  bool Known() const {
    const std::span<const std::string_view> keys =
        depth_ == 1 ? std::span<const std::string_view>(kTopKeys) : kFileKeys;
    return key_ == "files" || std::find(keys.begin(), keys.end(), key_) != keys.end();
  }
  bool Fail(std::string_view what) {
    error = fmt::format(fmt::runtime(what), key_);
    return false;
  }
  // A value of a kind that no key has here.
  bool Wrong(std::string_view found) {
    if (WithinIndex() && Known()) {
      error = fmt::format("`{}` is {}", key_, found);
      return false;
    }
    return Value();
  }
  bool Value() {
    if (depth_ == 0) return Fail("the top of the file is not an object");
    if (in_files_ && depth_ == 2) return Fail("a file is not an object");
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }
  bool Seen(std::string_view name) {
    const std::span<const std::string_view> keys =
        depth_ == 1 ? std::span<const std::string_view>(kTopKeys) : kFileKeys;
    uint32_t& seen = depth_ == 1 ? top_keys_ : file_keys_;
    const auto at = static_cast<uint32_t>(std::find(keys.begin(), keys.end(), name) - keys.begin());
    if (seen >> at & 1) return Fail("`{}` is there twice");
    seen |= 1u << at;
    return true;
  }
  template <class T>
  bool Take(std::string_view name, T& field, T& value) {
    if (!Seen(name)) return false;
    field = std::move(value);
    return true;
  }
  bool TakeDType(std::string& value) {
    const std::optional<DType> dtype = FromNumPyName(value);
    if (!dtype) return Fail("`{}` is no NumPy integer type");
    index.dtype = *dtype;
    return Seen("dtype");
  }
  bool Number(int64_t value) {
    if (!WithinIndex()) return Value();
    int64_t* field = nullptr;
    if (depth_ == 1 && key_ == "sequence_length") field = &index.sequence_length;
    if (depth_ == 1 && key_ == "total_instances") field = &index.total_instances;
    if (depth_ == 1 && key_ == "total_tokens") field = &index.total_tokens;
    if (InFile() && key_ == "n_tokens") field = &index.files.back().n_tokens;
    if (InFile() && key_ == "n_instances") field = &index.files.back().n_instances;
    if (InFile() && key_ == "instance_offset") field = &index.files.back().instance_offset;
    if (field == nullptr) return Wrong("a number");
    if (value < 0 || value > kMaxTokens) return Fail("`{}` is no count");
    return Take(key_, *field, value);
  }

  int64_t depth_ = 0;
  bool top_is_object_ = false;
  bool in_files_ = false;
  bool had_files_ = false;
  uint32_t top_keys_ = 0;   // one bit per key seen
  uint32_t file_keys_ = 0;  // of the current file
  std::string key_;
};

Status Damaged(std::string_view origin, std::string_view what) {
  return DataLossError("{}: {}; make the index anew (`ulmus data index`) or fetch it again", origin,
                       what);
}

// Without a copy of the files: an index may be large.
Status Compare(const Index& index, std::string_view origin) {
  if (index.sequence_length == 0) return Damaged(origin, "sequence_length 0");
  int64_t instances = 0;
  int64_t tokens = 0;
  for (size_t i = 0; i < index.files.size(); ++i) {
    const IndexFile& file = index.files[i];
    const int64_t expected = file.n_tokens / index.sequence_length;
    if (file.n_instances != expected || file.instance_offset != instances) {
      return Damaged(origin, fmt::format("file {} ({}): n_instances {} and instance_offset {}, but "
                                         "{} tokens give {} and {}",
                                         i, file.path, file.n_instances, file.instance_offset,
                                         file.n_tokens, expected, instances));
    }
    instances += expected;
    tokens += file.n_tokens;
    if (tokens > kMaxTokens) return Damaged(origin, fmt::format("more than {} tokens", kMaxTokens));
  }
  if (index.total_tokens != tokens || index.total_instances != instances) {
    return Damaged(origin,
                   fmt::format("totals of {} tokens and {} instances, but its files give {} and {}",
                               index.total_tokens, index.total_instances, tokens, instances));
  }
  if (const std::string expected = IndexFingerprint(index); index.fingerprint != expected) {
    return Damaged(origin, fmt::format("fingerprint {}, but its content gives {}",
                                       index.fingerprint, expected));
  }
  return Status();
}

}  // namespace

std::string IndexFingerprint(const Index& index) {
  Sha256 hash;
  const auto add = [&hash](std::string_view text) {
    hash.Update(text);
    hash.Update(std::string_view("\0", 1));
  };
  add(kVersion);
  add(std::to_string(index.sequence_length));
  add(NumPyName(index.dtype));
  add(index.tokenizer);
  for (const IndexFile& file : index.files) {
    add(file.path);
    add(std::to_string(file.n_tokens));
  }
  return "sha256:" + hash.hex();
}

Status CompleteIndex(Index& index) {
  if (index.sequence_length <= 0)
    return InvalidArgumentError("sequence_length = {}: must be at least 1", index.sequence_length);
  index.total_instances = 0;
  index.total_tokens = 0;
  for (IndexFile& file : index.files) {
    file.n_instances = file.n_tokens / index.sequence_length;
    file.instance_offset = index.total_instances;
    index.total_instances += file.n_instances;
    index.total_tokens += file.n_tokens;
    if (index.total_tokens > kMaxTokens)
      return InvalidArgumentError("{}: the files up to it hold more than {} tokens", file.path,
                                  kMaxTokens);
  }
  index.fingerprint = IndexFingerprint(index);
  return Status();
}

Result<Index> ParseIndex(std::string_view json, std::string_view origin) {
  Handler handler;
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  if (!parsed) return Damaged(origin, handler.error);
  if (!handler.complete()) return Damaged(origin, "a key of the index is missing");
  if (handler.version != kVersion) {
    return UnimplementedError("{}: format_version \"{}\"; \"{}\" is known", origin, handler.version,
                              kVersion);
  }
  TRY(Compare(handler.index, origin));
  return std::move(handler.index);
}

Result<Index> ReadIndex(const Path& path) {
  const MappedFile file = TRY(MappedFile::Open(path));
  const auto bytes = file.bytes();
  return ParseIndex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

std::string PrintIndex(const Index& index) {
  Json files = Json::array();
  for (const IndexFile& file : index.files) {
    files.push_back({{"path", file.path},
                     {"label", file.label},
                     {"n_tokens", file.n_tokens},
                     {"n_instances", file.n_instances},
                     {"instance_offset", file.instance_offset}});
  }
  const Json json = {{"format_version", kVersion},
                     {"sequence_length", index.sequence_length},
                     {"dtype", NumPyName(index.dtype)},
                     {"tokenizer", index.tokenizer},
                     {"total_instances", index.total_instances},
                     {"total_tokens", index.total_tokens},
                     {"fingerprint", index.fingerprint},
                     {"files", std::move(files)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status WriteIndex(const Path& path, const Index& index) {
  return WriteFileAtomic(path, PrintIndex(index));
}

Result<std::unique_ptr<InstanceSource>> MakeIndexed(const Index& index,
                                                    const IndexedOptions& options) {
  if (options.sequence_length != 0 && options.sequence_length != index.sequence_length) {
    return InvalidArgumentError(
        "the index is of sequence_length {}, the run of {}; make an index for it (`ulmus data "
        "index`)",
        index.sequence_length, options.sequence_length);
  }
  std::vector<TokenFileSpec> specs;
  std::vector<FixedLengthEntry> entries;
  for (const IndexFile& file : index.files) {
    entries.push_back(
        {.file = static_cast<int64_t>(specs.size()), .num_instances = file.n_instances});
    specs.push_back({.path = TRY(LocalPath(file.path, options.base, options.remaps)),
                     .label = file.label,
                     .expected_tokens = file.n_tokens});
  }
  auto files = TRY(TokenFiles::Open(std::move(specs),
                                    {.dtype = index.dtype, .vocab_size = options.ids.vocab_size}));
  return MakeFixedLength(std::move(files),
                         {.sequence_length = index.sequence_length, .ids = options.ids},
                         std::move(entries), {index.fingerprint, "olmo_grain-1"});
}

}  // namespace ulmus::data
