#include "checkpoint/read_block.h"

#include <algorithm>
#include <vector>

#include "checkpoint/element_cast.h"

namespace ulmus::checkpoint {
namespace {

constexpr int64_t kPieceBytes = int64_t{8} << 20;

}  // namespace

Result<int64_t> ReadBlockAs(const TensorSource& source, int64_t index, const Dims& offsets,
                            const Shape& block, DType to, std::span<std::byte> out) {
  const DType from = source.tensors()[static_cast<size_t>(index)].type.dtype;
  const int64_t row_elements = block.num_elements() / std::max<int64_t>(block.dim(0), 1);
  const int64_t piece =
      std::max<int64_t>(1, kPieceBytes / (std::max<int64_t>(row_elements, 1) * 4));
  std::vector<std::byte> stored;
  int64_t overflows = 0;
  for (int64_t row = 0; row < block.dim(0); row += piece) {
    Dims at = offsets, dims = block.dims();
    at[0] += row;
    dims[0] = std::min(piece, block.dim(0) - row);
    const Shape shape(dims);
    stored.resize(static_cast<size_t>(shape.num_elements() * SizeBytes(from)));
    TRY(source.ReadBlock(index, at, shape, stored));
    const auto begin = static_cast<size_t>(row * row_elements * SizeBytes(to));
    const auto size = static_cast<size_t>(shape.num_elements() * SizeBytes(to));
    overflows += CastElements(from, to, stored, out.subspan(begin, size));
  }
  return overflows;
}

Result<HostTensor> ReadStack(std::span<const std::string> names, bool stacked, DType dtype,
                             const Dims& offsets, const Shape& block, const ReadNamed& read) {
  HostTensor tensor(TensorType{dtype, block});
  if (!stacked) {
    TRY(read(names.front(), offsets, block, tensor.bytes()));
    return tensor;
  }
  const Dims at(offsets.begin() + 1, offsets.end());
  const Shape element(Dims(block.dims().begin() + 1, block.dims().end()));
  const auto size = static_cast<size_t>(element.num_elements() * SizeBytes(dtype));
  for (int64_t i = 0; i < block.dim(0); ++i) {
    TRY(read(names[static_cast<size_t>(offsets[0] + i)], at, element,
             tensor.bytes().subspan(static_cast<size_t>(i) * size, size)));
  }
  return tensor;
}

}  // namespace ulmus::checkpoint
