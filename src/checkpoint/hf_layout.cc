#include "checkpoint/hf_layout.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/contained_file.h"

namespace ulmus::checkpoint {
namespace {

// An index or a layout is three levels deep; foreign metadata may be a little deeper.
constexpr int kMaxDepth = 16;

// Receives an index's tokens. Keeps weight_map and metadata.total_size, skips what else it may
// hold.
class IndexReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  WeightIndex index;
  Status status;

  bool null() override { return Value("null"); }
  bool boolean(bool) override { return Value("a truth value"); }
  bool number_integer(number_integer_t) override { return Value("a negative number"); }
  bool binary(binary_t&) override { return Value("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!AtTotalSize()) return Value("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return Refuse("metadata.total_size {} is beyond 2^63 - 1", value);
    return SetTotalSize(static_cast<int64_t>(value));
  }

  // Some writers give the size as a float: 14596022272.0.
  bool number_float(number_float_t value, const string_t& text) override {
    if (!AtTotalSize()) return Value("a number");
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (!(value >= 0 && value <= kExact) ||
        value != static_cast<double>(static_cast<int64_t>(value)))
      return Refuse("metadata.total_size {} is no number of bytes", text.substr(0, 40));
    return SetTotalSize(static_cast<int64_t>(value));
  }

  bool string(string_t& text) override {
    if (depth_ == 2 && section_ == "weight_map") {
      if (const Status named = CheckBaseName(text); !named.ok())
        return Refuse("weight_map of tensor {}: {}", Quoted(key_), named.message());
      if (!text.ends_with(".safetensors"))
        return Refuse("weight_map of tensor {}: file {} is no .safetensors file", Quoted(key_),
                      Quoted(text));
      index.weight_map.push_back({std::move(key_), std::move(text)});
      return true;
    }
    return Value("a text");
  }

  bool key(string_t& text) override {
    if (depth_ == 1) section_ = text;
    key_ = std::move(text);
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ == 1 && section_ == "weight_map" && std::exchange(has_weight_map_, true))
      return Refuse("weight_map appears twice");
    if (depth_ == 1 && section_ == "metadata" && std::exchange(has_metadata_, true))
      return Refuse("metadata appears twice");
    if (depth_ == 2 && section_ == "weight_map")
      return Refuse("weight_map of tensor {}: an object, expected a file name", Quoted(key_));
    return Enter();
  }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override {
    if (depth_ == 0 || section_ == "weight_map" || (depth_ == 1 && section_ == "metadata"))
      return Refuse("{}: a list, expected an object", depth_ == 0 ? "index" : Quoted(section_));
    return Enter();
  }
  bool end_array() override { return Leave(); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    status = DataLossError("not valid JSON at byte {}: {}", position, Quoted(error.what()));
    return false;
  }

  Status Finish() const {
    if (!has_weight_map_) return DataLossError("has no weight_map");
    if (index.weight_map.empty()) return DataLossError("weight_map is empty");
    return Status();
  }

 private:
  template <class... Args>
  bool Refuse(fmt::format_string<Args...> format, Args&&... args) {
    status = DataLossError(format, std::forward<Args>(args)...);
    return false;
  }
  bool AtTotalSize() const { return depth_ == 2 && section_ == "metadata" && key_ == "total_size"; }
  bool SetTotalSize(int64_t value) {
    if (index.total_size_bytes) return Refuse("metadata.total_size appears twice");
    index.total_size_bytes = value;
    return true;
  }
  // A value that the format gives no meaning: allowed in metadata and under unknown keys.
  bool Value(std::string_view what) {
    if (depth_ == 0) return Refuse("starts with {}, expected an object", what);
    if (section_ == "weight_map" && depth_ == 1)
      return Refuse("weight_map is {}, expected an object", what);
    if (section_ == "weight_map")
      return Refuse("weight_map of tensor {}: {}, expected a file name", Quoted(key_), what);
    if (AtTotalSize()) return Refuse("metadata.total_size is {}, expected a number of bytes", what);
    return true;
  }
  bool Enter() {
    if (++depth_ > kMaxDepth) return Refuse("nested deeper than {} levels", kMaxDepth);
    return true;
  }
  bool Leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  std::string section_;  // key at depth 1
  std::string key_;      // last key
  bool has_weight_map_ = false;
  bool has_metadata_ = false;
};

std::string ShardName(int64_t index, int64_t count) {
  if (count == 1) return std::string(kSingleFileName);
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
}

std::string IndexText(const HfLayout& layout) {
  std::map<std::string, std::string> weight_map;
  for (const HfFile& file : layout.files)
    for (const SafetensorsTensor& tensor : file.header.tensors)
      weight_map[tensor.info.name] = file.name;
  const nlohmann::json index = {{"metadata", {{"total_size", layout.TotalTensorBytes()}}},
                                {"weight_map", weight_map}};
  return index.dump(2) + "\n";
}

HfFile PlanFile(std::string name, std::vector<TensorInfo> tensors) {
  SortAsSafetensors(tensors);
  HfFile file;
  file.name = std::move(name);
  file.header_text = SafetensorsHeaderText(tensors);
  file.header.has_metadata = true;
  file.header.metadata = {{"format", "pt"}};
  int64_t begin = 0;
  for (TensorInfo& tensor : tensors) {
    const int64_t end = begin + tensor.type.size_bytes();
    file.header.tensors.push_back({std::move(tensor), begin, end});
    begin = end;
  }
  return file;
}

Status CheckNames(std::span<const TensorInfo> tensors) {
  std::vector<std::string_view> names;
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  if (const auto it = std::ranges::adjacent_find(names); it != names.end())
    return DataLossError("tensor {} appears twice", Quoted(*it));
  if (std::ranges::binary_search(names, "__metadata__"))
    return InvalidArgumentError("a tensor called __metadata__ cannot be written to safetensors");
  return Status();
}

}  // namespace

std::vector<TensorInfo> HfLayout::Tensors() const {
  std::vector<TensorInfo> tensors;
  for (const HfFile& file : files)
    for (const SafetensorsTensor& tensor : file.header.tensors) tensors.push_back(tensor.info);
  return tensors;
}

int64_t HfLayout::TotalTensorBytes() const {
  int64_t bytes = 0;
  for (const HfFile& file : files)
    if (!file.header.tensors.empty()) bytes += file.header.tensors.back().end;
  return bytes;
}

std::vector<std::string> WeightIndex::Files() const {
  std::vector<std::string> files;
  for (const WeightMapEntry& entry : weight_map) files.push_back(entry.file);
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

Result<WeightIndex> ParseWeightIndex(std::string_view text) {
  // The parser takes a NUL for the end of the text, whatever follows.
  if (text.find('\0') != std::string_view::npos) return DataLossError("holds a NUL byte");
  IndexReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) return reader.status;
  TRY(reader.Finish());
  std::vector<WeightMapEntry>& map = reader.index.weight_map;
  std::ranges::stable_sort(map, {}, &WeightMapEntry::tensor);
  const auto twice = std::ranges::adjacent_find(map, {}, &WeightMapEntry::tensor);
  if (twice != map.end()) {
    return DataLossError("weight_map has tensor {} twice: in {} and in {}", Quoted(twice->tensor),
                         Quoted(twice->file), Quoted(std::next(twice)->file));
  }
  if (const auto count = static_cast<int64_t>(reader.index.Files().size()); count > kMaxFiles)
    return DataLossError("weight_map names {} files, more than the {} allowed", count, kMaxFiles);
  return std::move(reader.index);
}

Status CheckIndexAgainstFiles(const WeightIndex& index, std::span<const HfFile> files) {
  std::unordered_map<std::string_view, std::string_view> found;  // tensor -> file
  int64_t total = 0;
  for (const HfFile& file : files) {
    for (const SafetensorsTensor& tensor : file.header.tensors) {
      const auto [it, fresh] = found.emplace(tensor.info.name, file.name);
      if (!fresh) {
        return DataLossError("tensor {} is in two files, {} and {}", Quoted(tensor.info.name),
                             Quoted(it->second), Quoted(file.name));
      }
      total += tensor.end - tensor.begin;
    }
  }
  for (const WeightMapEntry& entry : index.weight_map) {
    const auto it = found.find(entry.tensor);
    if (it == found.end()) {
      return DataLossError("index lists tensor {} in {}, but no file has it", Quoted(entry.tensor),
                           Quoted(entry.file));
    }
    if (it->second != entry.file) {
      return DataLossError("index lists tensor {} in {}, but it is in {}", Quoted(entry.tensor),
                           Quoted(entry.file), Quoted(it->second));
    }
    found.erase(it);
  }
  if (!found.empty()) {
    const auto least = std::ranges::min_element(found);
    return DataLossError("file {} has tensor {}, which the index does not list",
                         Quoted(least->second), Quoted(least->first));
  }
  if (index.total_size_bytes && *index.total_size_bytes != total) {
    return DataLossError(
        "index says metadata.total_size {}, the tensors take {} bytes; index and files are of "
        "different revisions",
        *index.total_size_bytes, total);
  }
  return Status();
}

Result<HfLayout> PlanHfLayout(std::span<const TensorInfo> tensors, const LayoutOptions& options) {
  if (tensors.empty()) return InvalidArgumentError("there is no tensor to write");
  if (options.max_shard_bytes <= 0)
    return InvalidArgumentError("shard limit of {} bytes; give a positive size",
                                options.max_shard_bytes);
  TRY(CheckNames(tensors));
  std::vector<std::vector<TensorInfo>> shards;
  int64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    const int64_t size = tensor.type.size_bytes();
    if (shards.empty() || (bytes > 0 && size > options.max_shard_bytes - bytes)) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += size;
  }
  const auto count = static_cast<int64_t>(shards.size());
  if (count >= kMaxFiles) {
    return InvalidArgumentError("a shard limit of {} bytes gives {} files; give a larger one",
                                options.max_shard_bytes, count);
  }
  HfLayout layout;
  for (int64_t i = 0; i < count; ++i)
    layout.files.push_back(
        PlanFile(ShardName(i, count), std::move(shards[static_cast<size_t>(i)])));
  if (count > 1) layout.index_text = IndexText(layout);
  return layout;
}

std::string LayoutText(const HfLayout& layout) {
  nlohmann::ordered_json files = nlohmann::json::array();
  for (const HfFile& file : layout.files)
    files.push_back({{"name", file.name}, {"header", file.header_text}});
  nlohmann::ordered_json text = {{"format", "ulmus safetensors layout 1"}};
  text["index"] = layout.index_text ? nlohmann::ordered_json(*layout.index_text) : nullptr;
  text["files"] = std::move(files);
  return text.dump(1) + "\n";
}

Result<HfLayout> ParseLayout(std::string_view text) {
  const auto refuse = [](std::string_view reason) {
    return DataLossError("{}: {}; without the file the weights are laid out anew", kLayoutFileName,
                         reason);
  };
  if (text.find('\0') != std::string_view::npos) return refuse("holds a NUL byte");
  const Result<Json> parsed = ParseJson(text, {.max_bytes = kMaxSideFileBytes, .max_depth = 8});
  if (!parsed.ok()) return refuse(parsed.error().message());
  const Json& json = *parsed;
  if (!json.is_object() || json.value("format", Json()) != "ulmus safetensors layout 1")
    return refuse("not a layout of version 1");
  const auto files = json.find("files");
  if (files == json.end() || !files->is_array()) return refuse("has no list of files");
  if (static_cast<int64_t>(files->size()) > kMaxFiles) return refuse("has too many files");
  HfLayout layout;
  for (const Json& item : *files) {
    if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
        !item.contains("header") || !item["header"].is_string())
      return refuse("a file without name and header");
    HfFile file{item["name"], item["header"], {}};
    if (const Status named = CheckBaseName(file.name); !named.ok()) return refuse(named.message());
    if (!file.name.ends_with(".safetensors")) return refuse("a file that is no .safetensors file");
    Result<SafetensorsHeader> header = ParseSafetensorsHeader(file.header_text);
    if (!header.ok()) return refuse(header.error().message());
    file.header = std::move(*header);
    layout.files.push_back(std::move(file));
  }
  if (layout.files.empty()) return refuse("has no files");
  std::vector<std::string_view> names;
  for (const HfFile& file : layout.files) names.push_back(file.name);
  std::ranges::sort(names);
  if (std::ranges::adjacent_find(names) != names.end()) return refuse("names one file twice");
  const auto index = json.find("index");
  if (index != json.end() && index->is_string()) layout.index_text = index->get<std::string>();
  if (layout.index_text) {
    const Result<WeightIndex> weights = ParseWeightIndex(*layout.index_text);
    if (!weights.ok()) return refuse(weights.error().message());
    if (const Status agrees = CheckIndexAgainstFiles(*weights, layout.files); !agrees.ok())
      return refuse(agrees.message());
  } else if (layout.files.size() != 1) {
    return refuse("several files without an index");
  }
  if (const Status unique = CheckNames(layout.Tensors()); !unique.ok())
    return refuse(unique.message());
  return layout;
}

}  // namespace ulmus::checkpoint
