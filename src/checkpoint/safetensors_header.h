// The JSON header of a safetensors file: strict reading of untrusted bytes, and the text as the
// public writer lays it out. docs/formats/safetensors.md describes the format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoint/tensor_source.h"

namespace ulmus::checkpoint {

// safetensors: tensor.rs, MAX_HEADER_SIZE.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;
// Far above any model; keeps a header of brackets from becoming a shape.
inline constexpr size_t kMaxSafetensorsRank = 64;

struct SafetensorsTensor {
  TensorInfo info;
  int64_t begin = 0;  // bytes after the header
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;                     // in the order of their bytes
  std::vector<std::pair<std::string, std::string>> metadata;  // of "__metadata__", as written
  bool has_metadata = false;                                  // an empty one counts
};

// Parses the JSON text of a header for a data area of `data_bytes`. kDataLoss names the tensor and
// the fault: no JSON object, wrong or duplicate keys, a shape that overflows or does not match its
// range, ranges that overlap or leave gaps. kUnimplemented for an element type that is not ours.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, int64_t data_bytes);
// The same when the size of the data area is what the header says.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text);

// The order in which the public writer lays out a file: widest element type first, then by name
// (safetensors: tensor.rs, prepare).
void SortAsSafetensors(std::vector<TensorInfo>& tensors);

// Header text for tensors that follow each other in this order, with {"format":"pt"}, padded with
// spaces to a multiple of 8: the bytes of the public writer.
std::string SafetensorsHeaderText(std::span<const TensorInfo> tensors);

// "BF16", "F32"; the spelling in headers.
std::string_view SafetensorsName(DType dtype);

}  // namespace ulmus::checkpoint
