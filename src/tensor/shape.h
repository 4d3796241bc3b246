// Shapes: the sizes of a tensor's axes, row-major, last axis contiguous.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace ulmus {

using Dims = std::vector<int64_t>;

class Shape {
 public:
  Shape() = default;  // scalar
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(Dims dims) : dims_(std::move(dims)) {}

  int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
  // Axis size; negative axes count from the end (-1 is the last).
  int64_t dim(int64_t axis) const;
  const Dims& dims() const { return dims_; }
  int64_t num_elements() const;  // 1 for a scalar
  Dims Strides() const;          // row-major, in elements
  std::string ToString() const;  // "[2,3]", "[]"

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  Dims dims_;
};

// What a tensor is, without its values.
struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t size_bytes() const { return shape.num_elements() * SizeBytes(dtype); }
  std::string ToString() const;  // "f32[2,3]"
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

}  // namespace ulmus
