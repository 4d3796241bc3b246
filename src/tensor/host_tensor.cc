#include "tensor/host_tensor.h"

#include <cstdlib>
#include <cstring>

namespace ulmus {
namespace {

// Calls f(null T*) for the C++ type that stores `dtype`.
template <class F>
auto Dispatch(DType dtype, F f) {
  switch (dtype) {
    case DType::kBool:
      return f(static_cast<bool*>(nullptr));
    case DType::kI8:
      return f(static_cast<int8_t*>(nullptr));
    case DType::kI16:
      return f(static_cast<int16_t*>(nullptr));
    case DType::kI32:
      return f(static_cast<int32_t*>(nullptr));
    case DType::kI64:
      return f(static_cast<int64_t*>(nullptr));
    case DType::kU8:
      return f(static_cast<uint8_t*>(nullptr));
    case DType::kU16:
      return f(static_cast<uint16_t*>(nullptr));
    case DType::kU32:
      return f(static_cast<uint32_t*>(nullptr));
    case DType::kU64:
      return f(static_cast<uint64_t*>(nullptr));
    case DType::kF16:
      return f(static_cast<F16*>(nullptr));
    case DType::kBF16:
      return f(static_cast<BF16*>(nullptr));
    case DType::kF32:
      return f(static_cast<float*>(nullptr));
    case DType::kF64:
      break;
  }
  return f(static_cast<double*>(nullptr));
}

// Calls f(source byte offset, block byte offset, run bytes) for every contiguous run of the block.
template <class F>
void ForEachRun(const TensorType& whole, const Dims& offsets, const Shape& block, F f) {
  const int64_t rank = whole.shape.rank();
  CHECK(block.rank() == rank && static_cast<int64_t>(offsets.size()) == rank, "block {} of {}",
        block.ToString(), whole.ToString());
  const int64_t element = SizeBytes(whole.dtype);
  if (rank == 0) return f(int64_t{0}, int64_t{0}, element);
  const Dims strides = whole.shape.Strides();
  const int64_t run = block.dim(-1) * element;
  const int64_t rows = block.num_elements() / std::max<int64_t>(block.dim(-1), 1);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row;
    int64_t start = offsets.back();
    for (int64_t d = rank - 2; d >= 0; --d) {
      const auto i = static_cast<size_t>(d);
      start += (offsets[i] + rest % block.dim(d)) * strides[i];
      rest /= block.dim(d);
    }
    f(start * element, row * run, run);
  }
}

}  // namespace

void HostTensor::Free::operator()(std::byte* p) const { std::free(p); }

HostTensor::HostTensor(TensorType type) : type_(std::move(type)) {
  const size_t size = static_cast<size_t>(type_.size_bytes());
  const size_t padded = (size + kHostAlignment) / kHostAlignment * kHostAlignment;  // never 0
  auto* p = static_cast<std::byte*>(std::aligned_alloc(kHostAlignment, padded));
  CHECK(p != nullptr, "out of host memory for {} ({} bytes)", type_.ToString(), size);
  std::memset(p, 0, padded);
  data_.reset(p);
}

double HostTensor::Get(int64_t index) const {
  CHECK(index >= 0 && index < num_elements(), "element {} of {}", index, type_.ToString());
  return Dispatch(type_.dtype, [&]<class T>(T*) {
    const T v = values<T>()[static_cast<size_t>(index)];
    if constexpr (std::is_same_v<T, BF16> || std::is_same_v<T, F16>) {
      return static_cast<double>(static_cast<float>(v));
    } else {
      return static_cast<double>(v);
    }
  });
}

void HostTensor::Set(int64_t index, double value) {
  CHECK(index >= 0 && index < num_elements(), "element {} of {}", index, type_.ToString());
  Dispatch(type_.dtype, [&]<class T>(T*) {
    T& v = values<T>()[static_cast<size_t>(index)];
    if constexpr (std::is_same_v<T, BF16> || std::is_same_v<T, F16>) {
      v = T(static_cast<float>(value));
    } else {
      v = static_cast<T>(RoundTo(type_.dtype, value));
    }
    return 0.0;
  });
}

HostTensor HostTensor::Clone() const {
  HostTensor copy(type_);
  std::memcpy(copy.bytes().data(), bytes().data(), bytes().size());
  return copy;
}

HostTensor CopyBlock(const HostTensor& source, const Dims& offsets, const Shape& shape) {
  HostTensor block(TensorType{source.dtype(), shape});
  ForEachRun(source.type(), offsets, shape, [&](int64_t from, int64_t to, int64_t size) {
    std::memcpy(block.bytes().data() + to, source.bytes().data() + from, static_cast<size_t>(size));
  });
  return block;
}

void PasteBlock(const HostTensor& block, const Dims& offsets, HostTensor& target) {
  CHECK(block.dtype() == target.dtype(), "{} pasted into {}", block.type().ToString(),
        target.type().ToString());
  ForEachRun(target.type(), offsets, block.shape(), [&](int64_t to, int64_t from, int64_t size) {
    std::memcpy(target.bytes().data() + to, block.bytes().data() + from, static_cast<size_t>(size));
  });
}

}  // namespace ulmus
