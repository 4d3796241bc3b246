#include "kernels/ffi.h"

#include <fmt/format.h>

namespace ulmus::kernels {

std::optional<DType> DTypeOf(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::PRED:
      return DType::kBool;
    case ffi::DataType::S8:
      return DType::kI8;
    case ffi::DataType::S16:
      return DType::kI16;
    case ffi::DataType::S32:
      return DType::kI32;
    case ffi::DataType::S64:
      return DType::kI64;
    case ffi::DataType::U8:
      return DType::kU8;
    case ffi::DataType::U16:
      return DType::kU16;
    case ffi::DataType::U32:
      return DType::kU32;
    case ffi::DataType::U64:
      return DType::kU64;
    case ffi::DataType::F16:
      return DType::kF16;
    case ffi::DataType::BF16:
      return DType::kBF16;
    case ffi::DataType::F32:
      return DType::kF32;
    case ffi::DataType::F64:
      return DType::kF64;
    default:
      return std::nullopt;
  }
}

Shape ShapeOf(const ffi::AnyBuffer& buffer) {
  const auto dims = buffer.dimensions();
  return Shape(Dims(dims.begin(), dims.end()));
}

std::string TypeText(const ffi::AnyBuffer& buffer) {
  const std::optional<DType> dtype = DTypeOf(buffer.element_type());
  if (dtype) return TensorType{*dtype, ShapeOf(buffer)}.ToString();
  return fmt::format("XLA type {}{}", static_cast<int>(buffer.element_type()),
                     ShapeOf(buffer).ToString());
}

}  // namespace ulmus::kernels
