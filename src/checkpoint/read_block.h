// Blocks of tensors read as floats of another type, for whoever fills devices from a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "checkpoint/tensor_source.h"
#include "tensor/host_tensor.h"

namespace ulmus::checkpoint {

// The block of shape `block` at `offsets` of tensor `index`, in `to`, a few rows at a time: beside
// `out` it takes a few MiB. Returns how many finite values became infinite. CHECKs CanCast.
Result<int64_t> ReadBlockAs(const TensorSource& source, int64_t index, const Dims& offsets,
                            const Shape& block, DType to, std::span<std::byte> out);

// Reads a block of the tensor of that name into `out`.
using ReadNamed = std::function<Status(const std::string& name, const Dims& offsets,
                                       const Shape& block, std::span<std::byte> out)>;

// A block of one tensor, or with `stacked` of the tensors `names` put together along a new first
// axis.
Result<HostTensor> ReadStack(std::span<const std::string> names, bool stacked, DType dtype,
                             const Dims& offsets, const Shape& block, const ReadNamed& read);

}  // namespace ulmus::checkpoint
