#include "tensor/dtype.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace ulmus {
namespace {

struct DTypeInfo {
  std::string_view name, mlir_name;
  int64_t size_bytes;
};

constexpr DTypeInfo kInfo[] = {
    {"bool", "i1", 1},  {"i8", "i8", 1},   {"i16", "i16", 2},   {"i32", "i32", 4},
    {"i64", "i64", 8},  {"u8", "ui8", 1},  {"u16", "ui16", 2},  {"u32", "ui32", 4},
    {"u64", "ui64", 8}, {"f16", "f16", 2}, {"bf16", "bf16", 2}, {"f32", "f32", 4},
    {"f64", "f64", 8},
};

const DTypeInfo& Info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

template <class T>
double Saturate(double value) {
  if (std::isnan(value)) return 0;
  return std::clamp(std::trunc(value), static_cast<double>(std::numeric_limits<T>::min()),
                    static_cast<double>(std::numeric_limits<T>::max()));
}

}  // namespace

int64_t SizeBytes(DType dtype) { return Info(dtype).size_bytes; }
bool IsFloat(DType dtype) { return dtype >= DType::kF16; }
bool IsSignedInt(DType dtype) { return dtype >= DType::kI8 && dtype <= DType::kI64; }
bool IsUnsignedInt(DType dtype) { return dtype >= DType::kU8 && dtype <= DType::kU64; }
std::string_view Name(DType dtype) { return Info(dtype).name; }
std::string_view MlirName(DType dtype) { return Info(dtype).mlir_name; }

Result<DType> ParseDType(std::string_view name) {
  std::string known;
  for (DType dtype : kAllDTypes) {
    if (Name(dtype) == name) return dtype;
    known += known.empty() ? "" : ", ";
    known += Name(dtype);
  }
  return InvalidArgumentError("'{}' is not an element type; known: {}", name, known);
}

BF16::BF16(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    bits = static_cast<uint16_t>((u >> 16) | 0x40);
  } else {
    bits = static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
}

F16::F16(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000;
  const uint32_t magnitude = u & 0x7fffffff;
  uint32_t result;
  if (magnitude > 0x7f800000) {
    result = 0x7e00;  // NaN
  } else if (magnitude >= 0x477ff000) {
    result = 0x7c00;  // rounds past 65504
  } else if (magnitude < 0x38800000) {
    // Subnormal half: adding 2^-1 * 2^-14 lines the kept bits up with float's own rounding.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    result = std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5f);
  } else {
    const uint32_t odd = (magnitude >> 13) & 1;
    result = (magnitude - 0x38000000 + 0xfff + odd) >> 13;
  }
  bits = static_cast<uint16_t>(sign | result);
}

F16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  const uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | (biased << 23) | (mantissa << 13));
}

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kBool:
      return value != 0;
    case DType::kI8:
      return Saturate<int8_t>(value);
    case DType::kI16:
      return Saturate<int16_t>(value);
    case DType::kI32:
      return Saturate<int32_t>(value);
    case DType::kI64:
      return Saturate<int64_t>(value);
    case DType::kU8:
      return Saturate<uint8_t>(value);
    case DType::kU16:
      return Saturate<uint16_t>(value);
    case DType::kU32:
      return Saturate<uint32_t>(value);
    case DType::kU64:
      return Saturate<uint64_t>(value);
    case DType::kF16:
      return static_cast<double>(static_cast<float>(F16(static_cast<float>(value))));
    case DType::kBF16:
      return static_cast<double>(static_cast<float>(BF16(static_cast<float>(value))));
    case DType::kF32:
      return static_cast<double>(static_cast<float>(value));
    case DType::kF64:
      return value;
  }
  return value;
}

}  // namespace ulmus
