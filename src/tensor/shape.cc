#include "tensor/shape.h"

#include <fmt/ranges.h>

#include "base/check.h"

namespace ulmus {

int64_t Shape::dim(int64_t axis) const {
  const int64_t index = axis < 0 ? axis + rank() : axis;
  CHECK(index >= 0 && index < rank(), "axis {} of shape {}", axis, ToString());
  return dims_[static_cast<size_t>(index)];
}

int64_t Shape::num_elements() const {
  int64_t count = 1;
  for (int64_t d : dims_) count *= d;
  return count;
}

Dims Shape::Strides() const {
  Dims strides(dims_.size(), 1);
  for (size_t i = dims_.size(); i-- > 1;) strides[i - 1] = strides[i] * dims_[i];
  return strides;
}

std::string Shape::ToString() const { return fmt::format("[{}]", fmt::join(dims_, ",")); }

std::string TensorType::ToString() const {
  return fmt::format("{}{}", Name(dtype), shape.ToString());
}

}  // namespace ulmus
