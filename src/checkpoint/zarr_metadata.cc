#include "checkpoint/zarr_metadata.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/json.h"
#include "tensor/host_tensor.h"

namespace ulmus::checkpoint {
namespace {

struct ZarrType {
  std::string_view name;
  DType dtype;
};
constexpr ZarrType kZarrTypes[] = {
    {"bool", DType::kBool},   {"int8", DType::kI8},       {"int16", DType::kI16},
    {"int32", DType::kI32},   {"int64", DType::kI64},     {"uint8", DType::kU8},
    {"uint16", DType::kU16},  {"uint32", DType::kU32},    {"uint64", DType::kU64},
    {"float16", DType::kF16}, {"bfloat16", DType::kBF16}, {"float32", DType::kF32},
    {"float64", DType::kF64},
};

// --- Reading

// An extension point of zarr: "name" or {"name": ..., "configuration": {...}}.
struct Named {
  std::string name;
  Json configuration = Json::object();
};

Result<Named> ParseNamed(const Json& value, std::string_view what) {
  if (value.is_string()) return Named{.name = value.get<std::string>()};
  if (!value.is_object())
    return InvalidArgumentError("{}: {}, expected an object with a name", what, JsonExcerpt(value));
  Named named;
  for (const auto& [key, field] : value.items()) {
    if (key == "name" && field.is_string()) {
      named.name = field.get<std::string>();
    } else if (key == "configuration" && field.is_object()) {
      named.configuration = field;
    } else if (key != "must_understand" || !field.is_boolean()) {
      return InvalidArgumentError("{}: unexpected {}: {}", what, key, JsonExcerpt(field));
    }
  }
  if (named.name.empty())
    return InvalidArgumentError("{}: {} has no name", what, JsonExcerpt(value));
  return named;
}

// Takes fields out of a configuration; what is left at the end was not expected.
class Fields {
 public:
  Fields(Json object, std::string what) : object_(std::move(object)), what_(std::move(what)) {}

  std::optional<Json> Take(const std::string& key) {
    const auto it = object_.find(key);
    if (it == object_.end()) return std::nullopt;
    Json value = std::move(*it);
    object_.erase(it);
    return value;
  }
  Result<Json> Need(const std::string& key) {
    std::optional<Json> value = Take(key);
    if (!value) return InvalidArgumentError("{}: no {}", what_, key);
    return std::move(*value);
  }
  Status NothingLeft() const {
    for (const auto& [key, value] : object_.items()) {
      // Only objects that say so may be passed over.
      if (value.is_object() && value.contains("must_understand") &&
          value["must_understand"] == false)
        continue;
      return InvalidArgumentError("{}: unknown field {}: {}", what_, key, JsonExcerpt(value));
    }
    return Status();
  }
  const std::string& what() const { return what_; }

 private:
  Json object_;
  std::string what_;
};

Result<int64_t> ParseInt(const Json& value, int64_t low, int64_t high, std::string_view what) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(high)
                        : value.is_number_integer();
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
    return InvalidArgumentError("{}: {}, expected a whole number from {} to {}", what,
                                JsonExcerpt(value), low, high);
  return value.get<int64_t>();
}

// Sizes whose product stays below kMaxElements, empty axes counted as 1.
Result<Shape> ParseShape(const Json& value, int64_t smallest, std::string_view what) {
  if (!value.is_array() || static_cast<int64_t>(value.size()) > kMaxRank)
    return InvalidArgumentError("{}: {}, expected a list of at most {} sizes", what,
                                JsonExcerpt(value), kMaxRank);
  Dims dims;
  int64_t elements = 1;
  for (const Json& entry : value) {
    dims.push_back(TRY(ParseInt(entry, smallest, kMaxElements, what)));
    if (std::max<int64_t>(dims.back(), 1) > kMaxElements / elements)
      return InvalidArgumentError("{}: {} has more than 2^56 elements", what, JsonExcerpt(value));
    elements *= std::max<int64_t>(dims.back(), 1);
  }
  return Shape(std::move(dims));
}

Result<DType> ParseZarrType(const Json& value) {
  const Named named = TRY(ParseNamed(value, "data_type"));
  for (const ZarrType& type : kZarrTypes) {
    if (type.name == named.name) return type.dtype;
  }
  return UnimplementedError(
      "data_type: '{}' is not supported; it must be one of bool, int8..int64, "
      "uint8..uint64, float16, bfloat16, float32, float64",
      named.name);
}

// "0x7fc00000": the bits of one element, most significant digit first.
Result<std::vector<std::byte>> ParseHexFill(std::string_view text, size_t size) {
  std::vector<std::byte> element(size);
  for (size_t i = 0; i < size; ++i) {
    uint8_t byte = 0;
    const char* digits = text.data() + 2 + 2 * (size - 1 - i);
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      return InvalidArgumentError("fill_value: '{}' is not hexadecimal", text);
    element[i] = std::byte{byte};
  }
  return element;
}

Result<double> ParseFloatFill(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  return InvalidArgumentError("fill_value: {} is no number", JsonExcerpt(value));
}

template <class T>
std::vector<std::byte> LittleEndianBytes(T value, size_t size) {
  std::vector<std::byte> bytes(size);
  std::memcpy(bytes.data(), &value, size);
  return bytes;
}

Result<std::vector<std::byte>> ParseFill(const Json& value, DType dtype) {
  const auto size = static_cast<size_t>(SizeBytes(dtype));
  if (dtype == DType::kBool) {
    if (!value.is_boolean())
      return InvalidArgumentError("fill_value: {}, expected true or false", JsonExcerpt(value));
    return LittleEndianBytes(value.get<bool>(), size);
  }
  if (IsFloat(dtype)) {
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (text.starts_with("0x") && text.size() == 2 + 2 * size) return ParseHexFill(text, size);
    }
    HostTensor element(TensorType{dtype, Shape()});
    const double number = TRY(ParseFloatFill(value));
    element.Set(0, number);
    return std::vector(element.bytes().begin(), element.bytes().end());
  }
  const int bits = static_cast<int>(8 * size) - (IsSignedInt(dtype) ? 1 : 0);
  if (bits == 64) {
    if (!value.is_number_unsigned())
      return InvalidArgumentError("fill_value: {}, expected a whole number", JsonExcerpt(value));
    return LittleEndianBytes(value.get<uint64_t>(), size);
  }
  const int64_t high = bits == 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
  const int64_t low = IsSignedInt(dtype) ? -high - 1 : 0;
  const int64_t number = TRY(ParseInt(value, low, high, "fill_value"));
  return LittleEndianBytes(number, size);
}

Result<ChunkKeys> ParseChunkKeys(const Json& value) {
  const Named named = TRY(ParseNamed(value, "chunk_key_encoding"));
  if (named.name != "default" && named.name != "v2")
    return UnimplementedError("chunk_key_encoding: '{}' is not supported; it must be default or v2",
                              named.name);
  ChunkKeys keys{.v2 = named.name == "v2", .separator = named.name == "v2" ? '.' : '/'};
  Fields fields(named.configuration, "chunk_key_encoding");
  if (const std::optional<Json> separator = fields.Take("separator")) {
    if (*separator != "/" && *separator != ".")
      return InvalidArgumentError("chunk_key_encoding: separator {}, expected \"/\" or \".\"",
                                  JsonExcerpt(*separator));
    keys.separator = separator->get_ref<const std::string&>()[0];
  }
  TRY(fields.NothingLeft());
  return keys;
}

Status ParseBytesCodec(const Named& named, DType dtype, const std::string& what) {
  Fields fields(named.configuration, what + ": bytes");
  const std::optional<Json> endian = fields.Take("endian");
  if (!endian && SizeBytes(dtype) > 1)
    return InvalidArgumentError("{}: bytes: no endian, needed for {}", what, ZarrName(dtype));
  if (endian && *endian != "little")
    return UnimplementedError("{}: bytes: endian {} is not supported; it must be \"little\"", what,
                              JsonExcerpt(*endian));
  return fields.NothingLeft();
}

Result<ByteCodec> ParseByteCodec(const Named& named, const std::string& what) {
  if (named.name == "crc32c") {
    TRY(Fields(named.configuration, what + ": crc32c").NothingLeft());
    return ByteCodec{.kind = ByteCodec::Kind::kCrc32c};
  }
  if (named.name == "zstd") {
    Fields fields(named.configuration, what + ": zstd");
    ByteCodec codec{.kind = ByteCodec::Kind::kZstd};
    // The limits of the library: -131072 to 22.
    const Json level = TRY(fields.Need("level"));
    codec.level = static_cast<int>(TRY(ParseInt(level, -131072, 22, fields.what() + ": level")));
    if (const std::optional<Json> checksum = fields.Take("checksum")) {
      if (!checksum->is_boolean())
        return InvalidArgumentError("{}: checksum: {}, expected true or false", fields.what(),
                                    JsonExcerpt(*checksum));
      codec.checksum = checksum->get<bool>();
    }
    TRY(fields.NothingLeft());
    return codec;
  }
  return UnimplementedError(
      "{}: codec '{}' is not supported here; it must be bytes, crc32c, zstd, "
      "or sharding_indexed alone",
      what, JsonExcerpt(named.name));
}

constexpr size_t kMaxCodecs = 8;

Result<std::vector<Named>> ParseCodecList(const Json& value, const std::string& what) {
  if (!value.is_array() || value.empty() || value.size() > kMaxCodecs)
    return InvalidArgumentError("{}: {}, expected a list of 1 to {} codecs", what,
                                JsonExcerpt(value), kMaxCodecs);
  std::vector<Named> list;
  for (const Json& entry : value) list.push_back(TRY(ParseNamed(entry, what)));
  return list;
}

// The codec `bytes`, then those from bytes to bytes.
Result<ByteCodecs> ParseByteCodecs(const Json& value, DType dtype, const std::string& what) {
  const std::vector<Named> list = TRY(ParseCodecList(value, what));
  ByteCodecs codecs;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i == 0 && list[i].name == "bytes") {
      TRY(ParseBytesCodec(list[i], dtype, what));
      continue;
    }
    if (i == 0)
      return UnimplementedError("{}: codec '{}' is not supported here; the first must be bytes",
                                what, JsonExcerpt(list[i].name));
    codecs.push_back(TRY(ParseByteCodec(list[i], what)));
  }
  return codecs;
}

Result<ShardLayout> ParseShardLayout(const Named& named, const ArrayMetadata& array) {
  Fields fields(named.configuration, "codecs: sharding_indexed");
  ShardLayout shard;
  const Json inner_shape = TRY(fields.Need("chunk_shape"));
  shard.inner_shape = TRY(ParseShape(inner_shape, 1, fields.what() + ": chunk_shape"));
  const Dims& inner = shard.inner_shape.dims();
  const Dims& outer = array.chunk_shape.dims();
  bool divides = inner.size() == outer.size();
  for (size_t axis = 0; divides && axis < inner.size(); ++axis)
    divides = outer[axis] % inner[axis] == 0;
  if (!divides)
    return InvalidArgumentError("{}: chunk_shape {} does not divide the chunk {}", fields.what(),
                                shard.inner_shape.ToString(), array.chunk_shape.ToString());
  const Json codecs = TRY(fields.Need("codecs"));
  shard.codecs = TRY(ParseByteCodecs(codecs, array.type.dtype, fields.what() + ": codecs"));
  const std::string index_what = fields.what() + ": index_codecs";
  const Json index_codecs = TRY(fields.Need("index_codecs"));
  shard.index_codecs = TRY(ParseByteCodecs(index_codecs, DType::kU64, index_what));
  for (const ByteCodec& codec : shard.index_codecs) {
    if (codec.kind == ByteCodec::Kind::kZstd)
      return InvalidArgumentError("{}: zstd would make the index of unknown size", index_what);
  }
  if (const std::optional<Json> location = fields.Take("index_location")) {
    if (*location != "end" && *location != "start")
      return InvalidArgumentError("{}: index_location {}, expected \"start\" or \"end\"",
                                  fields.what(), JsonExcerpt(*location));
    shard.index_at_end = *location == "end";
  }
  TRY(fields.NothingLeft());
  return shard;
}

Status ParseCodecs(const Json& value, ArrayMetadata& array) {
  const std::vector<Named> list = TRY(ParseCodecList(value, "codecs"));
  if (list[0].name != "sharding_indexed") {
    array.codecs = TRY(ParseByteCodecs(value, array.type.dtype, "codecs"));
    return Status();
  }
  if (list.size() > 1)
    return UnimplementedError("codecs: codec '{}' after sharding_indexed is not supported",
                              JsonExcerpt(list[1].name));
  array.sharding = TRY(ParseShardLayout(list[0], array));
  return Status();
}

Result<Shape> ParseChunkGrid(const Json& value, const Shape& shape) {
  const Named named = TRY(ParseNamed(value, "chunk_grid"));
  if (named.name != "regular")
    return UnimplementedError("chunk_grid: '{}' is not supported; it must be regular", named.name);
  Fields fields(named.configuration, "chunk_grid");
  const Json chunk_shape = TRY(fields.Need("chunk_shape"));
  Shape chunk = TRY(ParseShape(chunk_shape, 1, "chunk_grid: chunk_shape"));
  if (chunk.rank() != shape.rank())
    return InvalidArgumentError("chunk_grid: chunk_shape {} for shape {}", chunk.ToString(),
                                shape.ToString());
  TRY(fields.NothingLeft());
  return chunk;
}

// Fields that say nothing about the bytes.
Status CheckRest(Fields& fields, int64_t rank) {
  const std::optional<Json> attributes = fields.Take("attributes");
  if (attributes && !attributes->is_object())
    return InvalidArgumentError("attributes: {}, expected an object", JsonExcerpt(*attributes));
  const std::optional<Json> transformers = fields.Take("storage_transformers");
  if (transformers && (!transformers->is_array() || !transformers->empty()))
    return UnimplementedError("storage_transformers: {} is not supported; it must be empty",
                              JsonExcerpt(*transformers));
  const std::optional<Json> names = fields.Take("dimension_names");
  if (names && !names->is_null()) {
    bool fine = names->is_array() && static_cast<int64_t>(names->size()) == rank;
    for (size_t i = 0; fine && i < names->size(); ++i)
      fine = (*names)[i].is_string() || (*names)[i].is_null();
    if (!fine)
      return InvalidArgumentError("dimension_names: {}, expected {} names", JsonExcerpt(*names),
                                  rank);
  }
  return fields.NothingLeft();
}

// --- Writing

Json NamedJson(std::string_view name, Json configuration) {
  return {{"name", name}, {"configuration", std::move(configuration)}};
}

Json ByteCodecsJson(const ByteCodecs& codecs) {
  Json list = Json::array({NamedJson("bytes", {{"endian", "little"}})});
  for (const ByteCodec& codec : codecs) {
    if (codec.kind == ByteCodec::Kind::kZstd) {
      list.push_back(NamedJson("zstd", {{"level", codec.level}, {"checksum", codec.checksum}}));
    } else {
      list.push_back({{"name", "crc32c"}});
    }
  }
  return list;
}

Json FillJson(const std::vector<std::byte>& fill, DType dtype) {
  uint64_t bits = 0;
  CHECK(static_cast<int64_t>(fill.size()) == SizeBytes(dtype), "fill value of {} bytes",
        fill.size());
  std::memcpy(&bits, fill.data(), fill.size());
  if (dtype == DType::kBool) return bits != 0;
  if (IsFloat(dtype)) {
    if (bits == 0) return 0.0;
    return fmt::format("0x{:0{}x}", bits, 2 * fill.size());  // exact for every value
  }
  if (IsUnsignedInt(dtype)) return bits;
  const int unused = 64 - static_cast<int>(8 * fill.size());
  return static_cast<int64_t>(bits << unused) >> unused;
}

}  // namespace

std::string_view ZarrName(DType dtype) {
  for (const ZarrType& type : kZarrTypes) {
    if (type.dtype == dtype) return type.name;
  }
  CHECK(false, "dtype {} has no zarr name", Name(dtype));
  return "";
}

Shape ArrayMetadata::GridShape() const {
  Dims grid;
  for (size_t axis = 0; axis < chunk_shape.dims().size(); ++axis) {
    const int64_t size = type.shape.dims()[axis];
    const int64_t chunk = chunk_shape.dims()[axis];
    grid.push_back(size / chunk + (size % chunk != 0 ? 1 : 0));
  }
  return Shape(std::move(grid));
}

std::string ArrayMetadata::ChunkKey(const Dims& chunk) const {
  std::string key = keys.v2 ? "" : "c";
  for (const int64_t index : chunk) {
    if (!key.empty()) key += keys.separator;
    key += std::to_string(index);
  }
  return key.empty() ? "0" : key;  // a scalar with v2 keys
}

Result<ArrayMetadata> ParseArrayMetadata(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxZarrJsonBytes)
    return InvalidArgumentError("{} bytes, more than the limit of {}", text.size(),
                                kMaxZarrJsonBytes);
  Json root = TRY(ParseJson(text));
  if (!root.is_object()) return InvalidArgumentError("{}, expected an object", JsonExcerpt(root));
  Fields fields(std::move(root), "zarr.json");
  if (const Json format = TRY(fields.Need("zarr_format")); format != 3)
    return UnimplementedError("zarr_format: {} is not supported; it must be 3",
                              JsonExcerpt(format));
  if (const Json node = TRY(fields.Need("node_type")); node != "array")
    return InvalidArgumentError("node_type: {}, expected \"array\"", JsonExcerpt(node));
  ArrayMetadata array;
  const Json data_type = TRY(fields.Need("data_type"));
  const Json shape = TRY(fields.Need("shape"));
  const Json grid = TRY(fields.Need("chunk_grid"));
  const Json keys = TRY(fields.Need("chunk_key_encoding"));
  const Json fill = TRY(fields.Need("fill_value"));
  const Json codecs = TRY(fields.Need("codecs"));
  array.type.dtype = TRY(ParseZarrType(data_type));
  array.type.shape = TRY(ParseShape(shape, 0, "shape"));
  array.chunk_shape = TRY(ParseChunkGrid(grid, array.type.shape));
  array.keys = TRY(ParseChunkKeys(keys));
  array.fill_value = TRY(ParseFill(fill, array.type.dtype));
  TRY(ParseCodecs(codecs, array));
  TRY(CheckRest(fields, array.type.shape.rank()));
  return array;
}

std::string ArrayMetadataText(const ArrayMetadata& array) {
  Json codecs;
  if (array.sharding) {
    const ShardLayout& shard = *array.sharding;
    codecs = Json::array({NamedJson("sharding_indexed",
                                    {{"chunk_shape", shard.inner_shape.dims()},
                                     {"codecs", ByteCodecsJson(shard.codecs)},
                                     {"index_codecs", ByteCodecsJson(shard.index_codecs)},
                                     {"index_location", shard.index_at_end ? "end" : "start"}})});
  } else {
    codecs = ByteCodecsJson(array.codecs);
  }
  return JsonText({
      {"zarr_format", 3},
      {"node_type", "array"},
      {"shape", array.type.shape.dims()},
      {"data_type", ZarrName(array.type.dtype)},
      {"chunk_grid", NamedJson("regular", {{"chunk_shape", array.chunk_shape.dims()}})},
      {"chunk_key_encoding", NamedJson(array.keys.v2 ? "v2" : "default",
                                       {{"separator", std::string(1, array.keys.separator)}})},
      {"fill_value", FillJson(array.fill_value, array.type.dtype)},
      {"codecs", std::move(codecs)},
      {"attributes", Json::object()},
  });
}

}  // namespace ulmus::checkpoint
