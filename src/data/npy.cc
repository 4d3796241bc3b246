#include "data/npy.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <optional>

#include "base/check.h"

namespace ulmus::data {
namespace {

struct Descr {
  std::string_view text;
  DType dtype;
};

// '|' and '=' mean the same for one byte; NumPy writes '|'.
constexpr Descr kDescrs[] = {
    {"|b1", DType::kBool}, {"|u1", DType::kU8},  {"|i1", DType::kI8},  {"<u1", DType::kU8},
    {"<i1", DType::kI8},   {"<u2", DType::kU16}, {"<i2", DType::kI16}, {"<u4", DType::kU32},
    {"<i4", DType::kI32},  {"<u8", DType::kU64}, {"<i8", DType::kI64},
};

// A cursor over the Python literal of the header: a dict of strings, bools and one tuple.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool Take(std::string_view word) {
    SkipSpace();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  std::optional<std::string_view> String() {
    SkipSpace();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }
  std::optional<int64_t> Integer() {
    SkipSpace();
    int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) return std::nullopt;
    at_ += static_cast<size_t>(end - begin);
    Take('L');  // Python 2 wrote 10L
    return value;
  }
  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }
  std::string_view rest() const { return text_.substr(at_, 40); }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

struct Fields {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran;
  std::optional<int64_t> num_elements;
};

Status Malformed(std::string_view what, std::string_view found) {
  return DataLossError("npy header: expected {}, found \"{}\"; write the file anew", what, found);
}

Result<int64_t> ParseShape(Literal& literal) {
  if (!literal.Take('(')) return Malformed("a tuple as shape", literal.rest());
  const std::optional<int64_t> size = literal.Integer();
  if (!size) return InvalidArgumentError("npy array has no dimension; expected one");
  if (!literal.Take(',')) return Malformed("`,` in a shape of one dimension", literal.rest());
  if (!literal.Take(')'))
    return InvalidArgumentError("npy array has more than one dimension; flatten it first");
  return *size;
}

Status ParseField(Literal& literal, Fields& fields) {
  const std::optional<std::string_view> key = literal.String();
  if (!key || !literal.Take(':')) return Malformed("a key", literal.rest());
  if (*key == "descr" && !fields.descr) {
    fields.descr = literal.String();
    if (!fields.descr)
      return InvalidArgumentError("npy array is of a structured type; expected integers");
  } else if (*key == "fortran_order" && !fields.fortran) {
    if (!literal.Take("True") && !literal.Take("False"))
      return Malformed("True or False", literal.rest());
    fields.fortran = false;  // one dimension: both orders are the same
  } else if (*key == "shape" && !fields.num_elements) {
    fields.num_elements = TRY(ParseShape(literal));
  } else {
    return Malformed("descr, fortran_order and shape once each", *key);
  }
  return Status();
}

Result<Fields> ParseDict(std::string_view text) {
  Literal literal(text);
  if (!literal.Take('{')) return Malformed("a dict", literal.rest());
  Fields fields;
  while (!literal.Take('}')) {
    TRY(ParseField(literal, fields));
    if (!literal.Take(',')) {
      if (!literal.Take('}')) return Malformed("`,` or `}`", literal.rest());
      break;
    }
  }
  if (!literal.AtEnd()) return Malformed("the end after `}`", literal.rest());
  if (!fields.descr || !fields.fortran || !fields.num_elements)
    return Malformed("descr, fortran_order and shape", text.substr(0, 40));
  return fields;
}

}  // namespace

bool IsNpy(std::span<const std::byte> start) {
  return start.size() >= kNpyMagic.size() &&
         std::memcmp(start.data(), kNpyMagic.data(), kNpyMagic.size()) == 0;
}

Result<NpyHeader> ParseNpyHeader(std::span<const std::byte> start) {
  const auto byte = [&](size_t i) { return std::to_integer<uint32_t>(start[i]); };
  if (!IsNpy(start) || start.size() < 10) return DataLossError("npy header is cut");
  const uint32_t major = byte(6);
  if (major < 1 || major > 3)
    return InvalidArgumentError("npy version {}.{}; versions 1 to 3 are known", major, byte(7));
  const size_t prefix = major == 1 ? 10 : 12;  // magic, version, length of the text
  if (start.size() < prefix) return DataLossError("npy header is cut");
  uint32_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMaxNpyHeaderBytes - prefix)
    return DataLossError("npy header claims {} bytes; at most {} are believed", length,
                         kMaxNpyHeaderBytes - static_cast<int64_t>(prefix));
  if (start.size() < prefix + length) return DataLossError("npy header is cut");
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + prefix, length);
  const Fields fields = TRY(ParseDict(text));
  for (const Descr& descr : kDescrs) {
    if (descr.text == *fields.descr)
      return NpyHeader{descr.dtype, *fields.num_elements, static_cast<int64_t>(prefix + length)};
  }
  return InvalidArgumentError(
      "npy array has elements \"{}\"; expected little-endian integers or bools", *fields.descr);
}

std::string NpyHeaderText(DType dtype, int64_t num_elements) {
  std::string_view name;
  for (const Descr& descr : kDescrs) {
    if (name.empty() && descr.dtype == dtype) name = descr.text;
  }
  CHECK(!name.empty(), "npy header of {}", Name(dtype));
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}",
                                 name, num_elements);
  const size_t prefix = kNpyMagic.size() + 4;
  text.append(63 - (prefix + text.size()) % 64, ' ');
  text += '\n';
  std::string header(kNpyMagic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 255);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace ulmus::data
