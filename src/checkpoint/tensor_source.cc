#include "checkpoint/tensor_source.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace ulmus::checkpoint {
namespace {

// First axis of the contiguous tail: all axes behind it are taken whole.
size_t FirstContiguousAxis(const Shape& shape, const Shape& block) {
  size_t axis = shape.dims().size();
  while (axis > 0 && block.dims()[axis - 1] == shape.dims()[axis - 1]) --axis;
  return axis == 0 ? 0 : axis - 1;
}

// Steps `position` to the next index of the first `axes` axes of `block`; false after the last.
bool Next(const Shape& block, size_t axes, Dims& position) {
  for (size_t axis = axes; axis-- > 0;) {
    if (++position[axis] < block.dims()[axis]) return true;
    position[axis] = 0;
  }
  return false;
}

}  // namespace

Status TensorSource::ReadBlock(int64_t index, const Dims& offsets, const Shape& block,
                               std::span<std::byte> out) const {
  const TensorInfo& info = tensors()[static_cast<size_t>(index)];
  const Shape& shape = info.type.shape;
  CHECK(block.rank() == shape.rank() && offsets.size() == shape.dims().size(), "{}: block {} of {}",
        info.name, block.ToString(), shape.ToString());
  for (size_t axis = 0; axis < offsets.size(); ++axis) {
    CHECK(offsets[axis] >= 0 && offsets[axis] <= shape.dims()[axis] - block.dims()[axis],
          "{}: block {} at {} of axis {} leaves {}", info.name, block.ToString(), offsets[axis],
          axis, shape.ToString());
  }
  CHECK(static_cast<int64_t>(out.size()) == block.num_elements() * SizeBytes(info.type.dtype),
        "{}: {} bytes for block {}", info.name, out.size(), block.ToString());
  if (out.empty()) return Status();

  const size_t axes = FirstContiguousAxis(shape, block);
  const Dims strides = shape.Strides();
  int64_t run = 1;
  for (size_t axis = axes; axis < offsets.size(); ++axis) run *= block.dims()[axis];
  const auto run_bytes = static_cast<size_t>(run * SizeBytes(info.type.dtype));
  Dims position(offsets.size(), 0);
  do {
    int64_t first = 0;
    for (size_t axis = 0; axis < offsets.size(); ++axis)
      first += (offsets[axis] + position[axis]) * strides[axis];
    TRY(Read(index, first, out.first(run_bytes)));
    out = out.subspan(run_bytes);
  } while (Next(block, axes, position));
  return Status();
}

std::vector<int64_t> TensorSource::StorageOrder() const {
  std::vector<int64_t> order(tensors().size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Result<std::string> TensorSource::LoadSideFile(std::string_view name) const {
  return NotFoundError("{}: no such side file; this source has none", name);
}

std::optional<int64_t> FindTensor(const TensorSource& source, std::string_view name) {
  const std::span<const TensorInfo> tensors = source.tensors();
  const auto it = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorInfo& tensor, std::string_view key) { return tensor.name < key; });
  if (it == tensors.end() || it->name != name) return std::nullopt;
  return it - tensors.begin();
}

}  // namespace ulmus::checkpoint
