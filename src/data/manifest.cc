#include "data/manifest.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

namespace ulmus::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "ulmus tokens";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;
constexpr int64_t kMaxCount = int64_t{1} << 56;  // sums and products of counts stay in 64 bits
constexpr size_t kShaDigits = 64;
constexpr size_t kSampleDigits = 16;

// Fields of one JSON object, by name; an error says where the object is.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  Result<const Json*> Get(const char* key) const {
    if (!object_.is_object()) return DataLossError("{} is no JSON object", where_);
    const auto it = object_.find(key);
    if (it == object_.end()) return DataLossError("{} has no `{}`", where_, key);
    return &*it;
  }

  bool Has(const char* key) const { return object_.is_object() && object_.contains(key); }

  Result<int64_t> Count(const char* key) const {
    const Json& value = *TRY(Get(key));
    const bool counts = value.is_number_integer() &&
                        !(value.is_number_unsigned() && value.get<uint64_t>() > kMaxCount);
    if (!counts || value.get<int64_t>() < 0) {
      return DataLossError("{}: `{}` is {}; expected a count of at most 2^56", where_, key,
                           Show(value));
    }
    return value.get<int64_t>();
  }

  Result<std::string> Text(const char* key) const {
    const Json& value = *TRY(Get(key));
    if (!value.is_string())
      return DataLossError("{}: `{}` is {}; expected text", where_, key, Show(value));
    return value.get<std::string>();
  }

  Result<const Json*> List(const char* key) const {
    const Json* value = TRY(Get(key));
    if (!value->is_array()) return DataLossError("{}: `{}` is no list", where_, key);
    return value;
  }

  const std::string& where() const { return where_; }

 private:
  static std::string Show(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80);
  }

  const Json& object_;
  std::string where_;
};

// Names are joined to the manifest's folder, so that they must not lead out of it.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0\n", 4)) == std::string_view::npos;
}

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Files made before there were sample hashes have none.
Result<std::optional<uint64_t>> ReadSampleHash(const Fields& fields) {
  if (!fields.Has("sample_hash")) return std::optional<uint64_t>();
  const std::string text = TRY(fields.Text("sample_hash"));
  const std::optional<uint64_t> hash = ParseSampleHash(text);
  if (!hash)
    return DataLossError("{}: sample_hash `{}` is not {} hexadecimal digits", fields.where(), text,
                         kSampleDigits);
  return hash;
}

// No TRY inside braces: leaving an initializer half-way, clang and g++ do not destroy its first
// part.
Result<ManifestPart> ReadPart(const Fields& fields) {
  ManifestPart part;
  part.name = TRY(fields.Text("name"));
  part.bytes = TRY(fields.Count("bytes"));
  part.sha256 = TRY(fields.Text("sha256"));
  if (!IsPlainName(part.name))
    return DataLossError("{}: `{}` is no plain file name", fields.where(), part.name);
  if (!IsHex(part.sha256, kShaDigits))
    return DataLossError("{}: sha256 `{}` is not 64 hexadecimal digits", fields.where(),
                         part.sha256);
  part.sample_hash = TRY(ReadSampleHash(fields));
  return part;
}

Result<ManifestFile> ReadEntry(const Fields& fields, const Json& entry, DType dtype) {
  ManifestFile file;
  file.part = TRY(ReadPart(fields));
  file.tokens = TRY(fields.Count("tokens"));
  file.documents = TRY(fields.Count("documents"));
  if (file.part.bytes != file.tokens * SizeBytes(dtype)) {
    return DataLossError("{}: {} tokens of {} take {} bytes, but `bytes` is {}", fields.where(),
                         file.tokens, Name(dtype), file.tokens * SizeBytes(dtype), file.part.bytes);
  }
  if (entry.contains("sidecar"))
    file.sidecar = TRY(ReadPart(Fields(entry["sidecar"], fields.where() + ".sidecar")));
  return file;
}

Status ReadFiles(const Fields& root, Manifest& manifest) {
  int64_t tokens = 0;
  int64_t documents = 0;
  std::set<std::string> names;
  const Json& list = *TRY(root.List("files"));
  for (size_t i = 0; i < list.size(); ++i) {
    const Fields fields(list[i], fmt::format("files[{}]", i));
    manifest.files.push_back(TRY(ReadEntry(fields, list[i], manifest.dtype)));
    const ManifestFile& file = manifest.files.back();
    tokens += file.tokens;
    documents += file.documents;
    if (tokens > kMaxCount || documents > kMaxCount)
      return DataLossError("files[{}]: more than 2^56 tokens or documents in all", i);
    if (!names.insert(file.part.name).second ||
        (file.sidecar && !names.insert(file.sidecar->name).second))
      return DataLossError("files[{}]: a name stands twice", i);
  }
  if (tokens == manifest.tokens && documents == manifest.documents) return {};
  return DataLossError("the files have {} tokens in {} documents, but the sums say {} in {}",
                       tokens, documents, manifest.tokens, manifest.documents);
}

Result<DType> ReadDType(const Fields& root) {
  const std::string name = TRY(root.Text("dtype"));
  const DType dtype = TRY(ParseDType(name));
  if (!IsUnsignedInt(dtype)) return DataLossError("dtype {} is no unsigned integer", Name(dtype));
  return dtype;
}

Result<Manifest> Read(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Fields root(json, "the manifest");
  if (json.is_discarded()) return DataLossError("not valid JSON; the file is damaged");
  if (const std::string format = TRY(root.Text("format")); format != kFormat)
    return DataLossError("`format` is `{}`; expected `{}`", format, kFormat);
  if (const int64_t version = TRY(root.Count("version")); version != kVersion)
    return UnimplementedError("version {}; this program reads version {}", version, kVersion);
  Manifest manifest;
  manifest.dtype = TRY(ReadDType(root));
  manifest.vocab_size = TRY(root.Count("vocab_size"));
  const int64_t eos_id = TRY(root.Count("eos_id"));
  if (eos_id >= manifest.vocab_size || eos_id > INT32_MAX)
    return DataLossError("eos_id {} is outside the vocabulary of {}", eos_id, manifest.vocab_size);
  manifest.eos_id = static_cast<int32_t>(eos_id);
  manifest.tokenizer = TRY(root.Text("tokenizer"));
  manifest.settings = TRY(root.Text("settings"));
  manifest.tokens = TRY(root.Count("tokens"));
  manifest.documents = TRY(root.Count("documents"));
  manifest.empty_documents = TRY(root.Count("empty_documents"));
  manifest.bad_records = TRY(root.Count("bad_records"));
  for (const Json& input : *TRY(root.List("inputs"))) {
    const Fields fields(input, "inputs[]");
    std::string path = TRY(fields.Text("path"));
    const int64_t bytes = TRY(fields.Count("bytes"));
    const std::optional<uint64_t> sample_hash = TRY(ReadSampleHash(fields));
    manifest.inputs.push_back(
        {.path = std::move(path), .bytes = bytes, .sample_hash = sample_hash});
  }
  TRY(ReadFiles(root, manifest));
  return manifest;
}

Json PartJson(const ManifestPart& part) {
  Json json = {{"name", part.name}, {"bytes", part.bytes}, {"sha256", part.sha256}};
  if (part.sample_hash) json["sample_hash"] = PrintSampleHash(*part.sample_hash);
  return json;
}

}  // namespace

Result<Manifest> ParseManifest(std::string_view json, std::string_view origin) {
  Result<Manifest> manifest = Read(json);
  if (!manifest.ok()) return manifest.status().WithContext(origin);
  return manifest;
}

std::string PrintManifest(const Manifest& manifest) {
  Json inputs = Json::array();
  for (const ManifestInput& input : manifest.inputs) {
    inputs.push_back({{"path", input.path}, {"bytes", input.bytes}});
    if (input.sample_hash) inputs.back()["sample_hash"] = PrintSampleHash(*input.sample_hash);
  }
  Json files = Json::array();
  for (const ManifestFile& file : manifest.files) {
    Json entry = PartJson(file.part);
    entry["tokens"] = file.tokens;
    entry["documents"] = file.documents;
    if (file.sidecar) entry["sidecar"] = PartJson(*file.sidecar);
    files.push_back(std::move(entry));
  }
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"dtype", Name(manifest.dtype)},
                     {"vocab_size", manifest.vocab_size},
                     {"eos_id", manifest.eos_id},
                     {"tokenizer", manifest.tokenizer},
                     {"tokens", manifest.tokens},
                     {"documents", manifest.documents},
                     {"empty_documents", manifest.empty_documents},
                     {"bad_records", manifest.bad_records},
                     {"settings", manifest.settings},
                     {"inputs", inputs},
                     {"files", files}};
  // Paths of inputs may be any bytes; JSON holds text only.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string PrintSampleHash(uint64_t hash) { return fmt::format("{:016x}", hash); }

std::optional<uint64_t> ParseSampleHash(std::string_view text) {
  if (!IsHex(text, kSampleDigits)) return std::nullopt;
  uint64_t hash = 0;
  std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  return hash;
}

Result<Manifest> ReadManifest(const Path& path) {
  return ParseManifest(TRY(ReadFile(path, kMaxManifestBytes)), path.string());
}

Status WriteManifest(const Path& path, const Manifest& manifest) {
  return WriteFileAtomic(path, PrintManifest(manifest));
}

}  // namespace ulmus::data
