// Any bytes as a safetensors header, an index and a layout: refused or accepted, and what is
// accepted keeps its promises (exact tiling, base names) and survives being written again.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "checkpoint/contained_file.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/safetensors_header.h"

namespace {

using namespace ulmus;
using namespace ulmus::checkpoint;

void FuzzHeader(std::string_view text) {
  const Result<SafetensorsHeader> header = ParseSafetensorsHeader(text);
  if (!header.ok()) {
    CHECK(header.error().message().size() < 4096);
    return;
  }
  int64_t end = 0;
  std::vector<TensorInfo> tensors;
  for (const SafetensorsTensor& tensor : header->tensors) {
    CHECK(tensor.begin == end && tensor.end >= end, "{}", tensor.info.name);
    CHECK(tensor.end - tensor.begin == tensor.info.type.size_bytes());
    end = tensor.end;
    CHECK(tensor.info.type.shape.Strides().size() == tensor.info.type.shape.dims().size());
    tensors.push_back(tensor.info);
  }
  CHECK(ParseSafetensorsHeader(text, end).ok());
  CHECK(!ParseSafetensorsHeader(text, end + 1).ok());
  const Result<SafetensorsHeader> again =
      ParseSafetensorsHeader(SafetensorsHeaderText(tensors), end);
  CHECK(again.ok() && again->tensors.size() == tensors.size());
}

void FuzzIndex(std::string_view text) {
  const Result<WeightIndex> index = ParseWeightIndex(text);
  if (!index.ok()) return;
  for (const WeightMapEntry& entry : index->weight_map) CHECK(CheckBaseName(entry.file).ok());
  CHECK(!index->Files().empty());
}

void FuzzLayout(std::string_view text) {
  const Result<HfLayout> layout = ParseLayout(text);
  if (!layout.ok()) return;
  const std::string written = LayoutText(*layout);
  const Result<HfLayout> again = ParseLayout(written);
  CHECK(again.ok(), "{}", again.status().message());
  CHECK(LayoutText(*again) == written && again->Tensors() == layout->Tensors());
}

}  // namespace

// The first byte chooses the parser.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      FuzzHeader(text);
      break;
    case 1:
      FuzzIndex(text);
      break;
    default:
      FuzzLayout(text);
  }
  return 0;
}
