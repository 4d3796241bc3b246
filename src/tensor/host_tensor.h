// A tensor in host memory: type plus 64-byte aligned bytes (the alignment at which PJRT takes host
// memory as is).
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/check.h"
#include "tensor/shape.h"

namespace ulmus {

inline constexpr size_t kHostAlignment = 64;

class HostTensor {
 public:
  HostTensor() = default;                // f32 scalar without storage
  explicit HostTensor(TensorType type);  // zero-filled
  template <class T>
  HostTensor(Shape shape, std::span<const T> values);  // copies

  const TensorType& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }
  int64_t num_elements() const { return type_.shape.num_elements(); }

  std::span<std::byte> bytes() { return {data_.get(), static_cast<size_t>(type_.size_bytes())}; }
  std::span<const std::byte> bytes() const {
    return {data_.get(), static_cast<size_t>(type_.size_bytes())};
  }
  // The elements as T; CHECKs that T is the dtype.
  template <class T>
  std::span<T> values();
  template <class T>
  std::span<const T> values() const;

  // Element by row-major index, converted; for tests and tables, not for hot loops.
  double Get(int64_t index) const;
  void Set(int64_t index, double value);  // rounds to the dtype

  HostTensor Clone() const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  TensorType type_;
  std::unique_ptr<std::byte[], Free> data_;
};

// The block of `source` that starts at `offsets` and has `shape`.
HostTensor CopyBlock(const HostTensor& source, const Dims& offsets, const Shape& shape);
// Writes `block` into `target` at `offsets`.
void PasteBlock(const HostTensor& block, const Dims& offsets, HostTensor& target);

template <class T>
std::span<T> HostTensor::values() {
  CHECK(kDTypeOf<T> == type_.dtype, "{} read as {}", type_.ToString(), Name(kDTypeOf<T>));
  return {reinterpret_cast<T*>(data_.get()), static_cast<size_t>(num_elements())};
}

template <class T>
std::span<const T> HostTensor::values() const {
  CHECK(kDTypeOf<T> == type_.dtype, "{} read as {}", type_.ToString(), Name(kDTypeOf<T>));
  return {reinterpret_cast<const T*>(data_.get()), static_cast<size_t>(num_elements())};
}

template <class T>
HostTensor::HostTensor(Shape shape, std::span<const T> source)
    : HostTensor(TensorType{kDTypeOf<T>, std::move(shape)}) {
  CHECK(static_cast<int64_t>(source.size()) == num_elements(), "{} values for {}", source.size(),
        type_.ToString());
  std::copy(source.begin(), source.end(), values<T>().begin());
}

}  // namespace ulmus
