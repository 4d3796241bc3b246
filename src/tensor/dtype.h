// Element types, and the host representation of bfloat16 and float16.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "base/status.h"  // Result

namespace ulmus {

enum class DType : uint8_t {
  kBool,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64
};

// All of them, for tables and tests.
inline constexpr DType kAllDTypes[] = {
    DType::kBool, DType::kI8,  DType::kI16, DType::kI32,  DType::kI64, DType::kU8, DType::kU16,
    DType::kU32,  DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

int64_t SizeBytes(DType dtype);  // one element; bool takes one byte
bool IsFloat(DType dtype);
bool IsSignedInt(DType dtype);
bool IsUnsignedInt(DType dtype);
inline bool IsInt(DType dtype) { return IsSignedInt(dtype) || IsUnsignedInt(dtype); }

// "f32", "bf16", "i32", "u32", "bool": the names of recipes and messages.
std::string_view Name(DType dtype);
// MLIR's spelling: "f32", "bf16", "i32", "ui32", "i1".
std::string_view MlirName(DType dtype);
// Inverse of Name. kInvalidArgument names the text and lists the names that exist.
Result<DType> ParseDType(std::string_view name);

// bfloat16: the upper half of an IEEE float32.
struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value);  // rounds to nearest, ties to even; NaN stays NaN (quiet)
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  friend bool operator==(BF16, BF16) = default;  // of bits
};

// IEEE binary16.
struct F16 {
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float value);  // rounds to nearest, ties to even; overflow becomes infinity
  explicit operator float() const;
  friend bool operator==(F16, F16) = default;  // of bits
};

// `value` rounded as a store into `dtype` would (floats only; integers truncate toward zero and
// saturate).
double RoundTo(DType dtype, double value);

template <class T>
struct DTypeOfImpl;
template <>
struct DTypeOfImpl<bool> {
  static constexpr DType value = DType::kBool;
};
template <>
struct DTypeOfImpl<int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOfImpl<int16_t> {
  static constexpr DType value = DType::kI16;
};
template <>
struct DTypeOfImpl<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOfImpl<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOfImpl<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOfImpl<uint16_t> {
  static constexpr DType value = DType::kU16;
};
template <>
struct DTypeOfImpl<uint32_t> {
  static constexpr DType value = DType::kU32;
};
template <>
struct DTypeOfImpl<uint64_t> {
  static constexpr DType value = DType::kU64;
};
template <>
struct DTypeOfImpl<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOfImpl<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOfImpl<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOfImpl<double> {
  static constexpr DType value = DType::kF64;
};
template <class T>
inline constexpr DType kDTypeOf = DTypeOfImpl<T>::value;

}  // namespace ulmus
