// How the weights of a Hugging Face directory lie in files: which tensor in which file at which
// place, the headers and the index as text. A layout read from one directory and kept as a side
// file lets another program write the same bytes again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/safetensors_header.h"

namespace ulmus::checkpoint {

inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";
inline constexpr std::string_view kSingleFileName = "model.safetensors";
// Name of the side file that holds a layout (docs/formats/safetensors.md).
inline constexpr std::string_view kLayoutFileName = "safetensors_layout.json";
inline constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxFiles = 100'000;  // -0000k-of-0000N has five digits

struct HfFile {
  std::string name;         // base name
  std::string header_text;  // JSON with its padding, without the length before it
  SafetensorsHeader header;
};

struct HfLayout {
  std::vector<HfFile> files;
  std::optional<std::string> index_text;  // none for a single file without index

  // All tensors, file by file in the order of their bytes: the order in which HfSink wants them.
  std::vector<TensorInfo> Tensors() const;
  int64_t TotalTensorBytes() const;
};

// One entry of an index's weight_map.
struct WeightMapEntry {
  std::string tensor;
  std::string file;
};

struct WeightIndex {
  std::vector<WeightMapEntry> weight_map;   // sorted by tensor
  std::optional<int64_t> total_size_bytes;  // metadata.total_size
  // The files named, sorted, each once.
  std::vector<std::string> Files() const;
};

// Parses model.safetensors.index.json. kDataLoss names the entry: no object, a file name that is no
// plain name of a .safetensors file, a tensor named twice. Touches no file.
Result<WeightIndex> ParseWeightIndex(std::string_view text);

// kDataLoss with the first tensor that an index and its files place differently, or sizes that
// differ.
Status CheckIndexAgainstFiles(const WeightIndex& index, std::span<const HfFile> files);

struct LayoutOptions {
  // A file is closed when the next tensor would make its tensors exceed this; a larger tensor has a
  // file of its own. transformers 4: 5 GB.
  int64_t max_shard_bytes = 5'000'000'000;
};

// Fresh layout: tensors in the order given fill one file after the other; within a file they lie as
// the public writer would sort them. One file has no index. kInvalidArgument if there is no tensor,
// one name twice, or more than kMaxFiles files.
Result<HfLayout> PlanHfLayout(std::span<const TensorInfo> tensors, const LayoutOptions& options);

// A layout as JSON and back. Reading checks it as if it came from foreign files.
std::string LayoutText(const HfLayout& layout);
Result<HfLayout> ParseLayout(std::string_view text);

}  // namespace ulmus::checkpoint
