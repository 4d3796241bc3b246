// Conversion of elements between float types, as files ask for it.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace ulmus::checkpoint {

// True if the types are equal or both are floats. Integers and bools are never converted.
bool CanCast(DType from, DType to);

// Converts in.size() / SizeBytes(from) elements, rounding once, to nearest with ties to even; NaN
// stays NaN, infinities stay. Returns how many finite values became infinite, for the caller to
// refuse. `in` and `out` need no alignment and do not overlap; CHECKs CanCast and the sizes.
int64_t CastElements(DType from, DType to, std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace ulmus::checkpoint
