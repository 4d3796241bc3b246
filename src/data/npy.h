// Headers of NumPy's `.npy` files, versions 1 to 3, for one-dimensional arrays of integers or
// bools.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tensor/dtype.h"

namespace ulmus::data {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
// More than NumPy ever writes for one dimension; a header that claims more is refused unread.
inline constexpr int64_t kMaxNpyHeaderBytes = 4096;

struct NpyHeader {
  DType dtype = DType::kU32;
  int64_t num_elements = 0;
  int64_t data_offset = 0;  // bytes before the first element
};

// True if `start` begins as a `.npy` file does.
bool IsNpy(std::span<const std::byte> start);

// Parses the header at the start of a file; `start` holds its first kMaxNpyHeaderBytes, or all of
// it if shorter. kDataLoss if it is malformed or cut, kInvalidArgument if the array is of another
// kind (floats, big-endian, more dimensions): the message names what was found, callers add the
// path.
Result<NpyHeader> ParseNpyHeader(std::span<const std::byte> start);

// A version 1 header for little-endian data, padded to a multiple of 64 bytes as NumPy does.
std::string NpyHeaderText(DType dtype, int64_t num_elements);

}  // namespace ulmus::data
