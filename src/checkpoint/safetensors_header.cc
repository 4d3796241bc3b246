#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "checkpoint/contained_file.h"  // Quoted

namespace ulmus::checkpoint {
namespace {

struct DTypeSpelling {
  DType dtype;
  std::string_view name;
};

// In the public implementation's order of alignment (tensor.rs, Dtype).
constexpr DTypeSpelling kDTypes[] = {
    {DType::kBool, "BOOL"}, {DType::kU8, "U8"},   {DType::kI8, "I8"},     {DType::kI16, "I16"},
    {DType::kU16, "U16"},   {DType::kF16, "F16"}, {DType::kBF16, "BF16"}, {DType::kI32, "I32"},
    {DType::kU32, "U32"},   {DType::kF32, "F32"}, {DType::kF64, "F64"},   {DType::kI64, "I64"},
    {DType::kU64, "U64"},
};

size_t RankOf(DType dtype) {
  const auto it = std::ranges::find(kDTypes, dtype, &DTypeSpelling::dtype);
  CHECK(it != std::end(kDTypes), "element type {}", Name(dtype));
  return static_cast<size_t>(it - std::begin(kDTypes));
}

std::string KnownDTypes() {
  std::string names;
  for (const DTypeSpelling& spelling : kDTypes) {
    if (!names.empty()) names += ", ";
    names += spelling.name;
  }
  return names;
}

// Number of bytes, or nullopt if any product along the way leaves int64. Axes of size 0 do not hide
// an overflow of the others: strides are products too.
std::optional<int64_t> CheckedBytes(const Dims& dims, DType dtype) {
  int64_t product = SizeBytes(dtype);
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, dim, &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : product;
}

// Receives the tokens of a header and allows exactly the documented nesting, so that nothing is
// kept of any other. Depth is bounded by the states; nlohmann's parser itself uses a bit per level.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;
  Status status;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a truth value"); }
  bool number_integer(number_integer_t value) override {
    return Refuse("holds the negative number {}", value);
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Refuse("holds the number {}, not a whole number below 2^63", text.substr(0, 40));
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return Refuse("holds the number {}, beyond 2^63 - 1", value);
    if (state_ == State::kShape) {
      if (shape_.size() == kMaxSafetensorsRank)
        return Refuse("has more than {} axes", kMaxSafetensorsRank);
      shape_.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (state_ == State::kOffsets) {
      if (num_offsets_ == 2) return Refuse("has more than two data_offsets");
      offsets_[num_offsets_++] = static_cast<int64_t>(value);
      return true;
    }
    return Unexpected("a number");
  }

  bool string(string_t& text) override {
    if (state_ == State::kMetadata) {
      header.metadata.back().second = std::move(text);
      return true;
    }
    if (state_ != State::kTensor || field_ != Field::kDType) return Unexpected("a string");
    for (const DTypeSpelling& spelling : kDTypes) {
      if (spelling.name == text) {
        dtype_ = spelling.dtype;
        return true;
      }
    }
    status = UnimplementedError("tensor {}: element type {} is not supported; supported: {}",
                                Quoted(name_), Quoted(text), KnownDTypes());
    return false;
  }

  bool key(string_t& text) override {
    switch (state_) {
      case State::kRoot:
        name_ = std::move(text);
        return true;
      case State::kMetadata:
        header.metadata.emplace_back(std::move(text), "");
        return true;
      case State::kTensor:
        return TensorKey(text);
      default:
        return Unexpected("a key");
    }
  }

  bool start_object(size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kRoot;
      return true;
    }
    if (state_ != State::kRoot) return Unexpected("an object");
    if (name_ == "__metadata__") {
      if (header.has_metadata) return Refuse("appears twice");
      header.has_metadata = true;
      state_ = State::kMetadata;
      return true;
    }
    state_ = State::kTensor;
    field_ = Field::kNone;
    dtype_.reset();
    has_shape_ = false;
    has_offsets_ = false;
    shape_.clear();
    num_offsets_ = 0;
    return true;
  }

  bool end_object() override {
    if (state_ == State::kRoot) {
      state_ = State::kEnd;
      return true;
    }
    if (state_ == State::kTensor && !AddTensor()) return false;
    state_ = State::kRoot;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ == State::kTensor && field_ == Field::kShape) {
      state_ = State::kShape;
      return true;
    }
    if (state_ == State::kTensor && field_ == Field::kOffsets) {
      state_ = State::kOffsets;
      return true;
    }
    return Unexpected("a list");
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    const std::string what = error.what();
    // The library's text quotes the input; only its explanation is ours to repeat.
    status = DataLossError("header: not valid JSON at byte {}: {}", position, Quoted(what));
    return false;
  }

 private:
  enum class State { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum class Field { kNone, kDType, kShape, kOffsets };

  template <class... Args>
  bool Refuse(fmt::format_string<Args...> format, Args&&... args) {
    const std::string reason = fmt::format(format, std::forward<Args>(args)...);
    status = DataLossError("header: {} {}", Quoted(name_), reason);
    return false;
  }

  bool Unexpected(std::string_view what) {
    if (state_ == State::kStart) {
      status = DataLossError("header: starts with {}, expected an object", what);
      return false;
    }
    return Refuse("holds {} where the format has none", what);
  }

  bool TensorKey(const std::string& text) {
    if (text == "dtype") {
      if (dtype_) return Refuse("has dtype twice");
      field_ = Field::kDType;
    } else if (text == "shape") {
      if (std::exchange(has_shape_, true)) return Refuse("has shape twice");
      field_ = Field::kShape;
    } else if (text == "data_offsets") {
      if (std::exchange(has_offsets_, true)) return Refuse("has data_offsets twice");
      field_ = Field::kOffsets;
    } else {
      return Refuse("has the unknown field {}; known: dtype, shape, data_offsets", Quoted(text));
    }
    return true;
  }

  bool AddTensor() {
    if (!dtype_) return Refuse("has no dtype");
    if (!has_shape_) return Refuse("has no shape");
    if (num_offsets_ != 2) return Refuse("has {} data_offsets, expected 2", num_offsets_);
    if (offsets_[0] > offsets_[1])
      return Refuse("has reversed data_offsets [{}, {}]", offsets_[0], offsets_[1]);
    const std::optional<int64_t> bytes = CheckedBytes(shape_, *dtype_);
    const Shape shape(shape_);
    if (!bytes) return Refuse("has shape {}, whose size overflows", shape.ToString());
    if (*bytes != offsets_[1] - offsets_[0]) {
      return Refuse("takes {} bytes for {} {}, but data_offsets [{}, {}] hold {}", *bytes,
                    SafetensorsName(*dtype_), shape.ToString(), offsets_[0], offsets_[1],
                    offsets_[1] - offsets_[0]);
    }
    header.tensors.push_back({{std::move(name_), {*dtype_, shape}}, offsets_[0], offsets_[1]});
    return true;
  }

  State state_ = State::kStart;
  Field field_ = Field::kNone;
  std::string name_;
  std::optional<DType> dtype_;
  Dims shape_;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int64_t offsets_[2] = {};
  int num_offsets_ = 0;
};

// First string that is in the list twice, or null.
template <class T, class Key>
const std::string* Duplicate(const std::vector<T>& items, Key key) {
  std::vector<const std::string*> names;
  names.reserve(items.size());
  for (const T& item : items) names.push_back(&key(item));
  std::ranges::sort(names, [](const auto* a, const auto* b) { return *a < *b; });
  const auto it =
      std::ranges::adjacent_find(names, [](const auto* a, const auto* b) { return *a == *b; });
  return it == names.end() ? nullptr : *it;
}

Status CheckNoDuplicates(const SafetensorsHeader& header) {
  if (const std::string* name =
          Duplicate(header.tensors, [](const auto& t) -> const auto& { return t.info.name; }))
    return DataLossError("header: tensor {} appears twice", Quoted(*name));
  if (const std::string* name =
          Duplicate(header.metadata, [](const auto& m) -> const auto& { return m.first; }))
    return DataLossError("header: __metadata__ has {} twice", Quoted(*name));
  return Status();
}

// Every byte of the data area belongs to exactly one tensor.
Status CheckTiling(const std::vector<SafetensorsTensor>& tensors) {
  int64_t end = 0;
  const SafetensorsTensor* before = nullptr;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin != end) {
      return DataLossError(
          "header: tensor {} starts at byte {} of the data, but {} ends at {}: ranges {}",
          Quoted(tensor.info.name), tensor.begin,
          before == nullptr ? "nothing before it" : Quoted(before->info.name), end,
          tensor.begin < end ? "overlap" : "leave a gap");
    }
    end = tensor.end;
    before = &tensor;
  }
  return Status();
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes) {
    return DataLossError("header: {} bytes, more than the {} allowed", text.size(),
                         kMaxHeaderBytes);
  }
  if (text.empty() || text.front() != '{')
    return DataLossError("header: does not start with '{{', so this is no safetensors file");
  // The parser takes a NUL for the end of the text, whatever follows.
  if (text.find('\0') != std::string_view::npos) return DataLossError("header: holds a NUL byte");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) return reader.status;
  std::ranges::stable_sort(reader.header.tensors, {}, [](const SafetensorsTensor& tensor) {
    return std::pair(tensor.begin, tensor.end);
  });
  TRY(CheckNoDuplicates(reader.header));
  TRY(CheckTiling(reader.header.tensors));
  return std::move(reader.header);
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, int64_t data_bytes) {
  SafetensorsHeader header = TRY(ParseSafetensorsHeader(text));
  const int64_t end = header.tensors.empty() ? 0 : header.tensors.back().end;
  if (end != data_bytes) {
    return DataLossError("header: tensors take {} bytes, the file has {} after its header; {}", end,
                         data_bytes,
                         end > data_bytes ? "it is cut short, download it again"
                                          : "there are bytes that belong to no tensor");
  }
  return header;
}

void SortAsSafetensors(std::vector<TensorInfo>& tensors) {
  std::ranges::sort(tensors, [](const TensorInfo& a, const TensorInfo& b) {
    const size_t rank_a = RankOf(a.type.dtype);
    const size_t rank_b = RankOf(b.type.dtype);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
}

std::string SafetensorsHeaderText(std::span<const TensorInfo> tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  int64_t begin = 0;
  for (const TensorInfo& tensor : tensors) {
    const int64_t end = begin + tensor.type.size_bytes();
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        nlohmann::json(tensor.name).dump(), SafetensorsName(tensor.type.dtype),
                        tensor.type.shape.ToString(), begin, end);
    begin = end;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

std::string_view SafetensorsName(DType dtype) { return kDTypes[RankOf(dtype)].name; }

}  // namespace ulmus::checkpoint
