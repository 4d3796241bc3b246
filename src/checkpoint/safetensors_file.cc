#include "checkpoint/safetensors_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/check.h"

namespace ulmus::checkpoint {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian, as are tensors");

Result<SafetensorsFile> SafetensorsFile::Open(const Path& path) {
  RandomAccessFile file = TRY(RandomAccessFile::Open(path));
  const int64_t size = file.size_bytes();
  if (size < 8) {
    return DataLossError("{}: {} bytes, too short for a safetensors file; download it again", path,
                         size);
  }
  std::array<std::byte, 8> prefix;
  TRY(file.ReadAt(0, prefix));
  const auto length = std::bit_cast<uint64_t>(prefix);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    return DataLossError(
        "{}: header of {} bytes, more than the {} allowed; this is no safetensors file or a "
        "hostile "
        "one",
        path, length, kMaxHeaderBytes);
  }
  if (static_cast<int64_t>(length) > size - 8) {
    return DataLossError(
        "{}: header of {} bytes in a file of {}; it is cut short, download it again", path, length,
        size);
  }
  std::string text(length, '\0');
  TRY(file.ReadAt(8, std::as_writable_bytes(std::span<char>(text))));
  Result<SafetensorsHeader> header =
      ParseSafetensorsHeader(text, size - 8 - static_cast<int64_t>(length));
  if (!header.ok()) return header.error().WithContext(path.string());
  return SafetensorsFile(std::move(file), std::move(text), std::move(*header));
}

Status SafetensorsFile::Read(const SafetensorsTensor& tensor, int64_t first,
                             std::span<std::byte> out) const {
  const int64_t begin = tensor.begin + first * SizeBytes(tensor.info.type.dtype);
  CHECK(first >= 0 && begin + static_cast<int64_t>(out.size()) <= tensor.end,
        "{}: {} bytes from element {} of {}", tensor.info.name, out.size(), first,
        tensor.info.type.ToString());
  return file_.ReadAt(data_begin_ + begin, out);
}

Result<std::unique_ptr<SafetensorsSource>> SafetensorsSource::Open(const Path& path) {
  SafetensorsFile file = TRY(SafetensorsFile::Open(path));
  return std::unique_ptr<SafetensorsSource>(new SafetensorsSource(std::move(file)));
}

SafetensorsSource::SafetensorsSource(SafetensorsFile file) : file_(std::move(file)) {
  const std::vector<SafetensorsTensor>& tensors = file_.header().tensors;
  position_.resize(tensors.size());
  std::iota(position_.begin(), position_.end(), size_t{0});
  std::ranges::sort(position_, {},
                    [&](size_t i) -> const std::string& { return tensors[i].info.name; });
  for (size_t i : position_) infos_.push_back(tensors[i].info);
}

Status SafetensorsSource::Read(int64_t index, int64_t first, std::span<std::byte> out) const {
  return file_.Read(file_.header().tensors[position_[static_cast<size_t>(index)]], first, out);
}

std::vector<int64_t> SafetensorsSource::StorageOrder() const {
  std::vector<int64_t> order(position_.size());
  for (size_t i = 0; i < position_.size(); ++i) order[position_[i]] = static_cast<int64_t>(i);
  return order;
}

Status WriteSafetensors(const Path& path, const TensorSource& source) {
  std::vector<TensorInfo> tensors(source.tensors().begin(), source.tensors().end());
  SortAsSafetensors(tensors);
  const std::string header = SafetensorsHeaderText(tensors);
  const auto length = static_cast<uint64_t>(header.size());
  AtomicFile file = TRY(AtomicFile::Create(path));
  TRY(file.Write(std::as_bytes(std::span(&length, 1))));
  TRY(file.Write(header));
  std::vector<std::byte> buffer(size_t{1} << 20);
  for (const TensorInfo& tensor : tensors) {
    const int64_t index = *FindTensor(source, tensor.name);
    const int64_t size = SizeBytes(tensor.type.dtype);
    const int64_t step = static_cast<int64_t>(buffer.size()) / size;
    const int64_t count = tensor.type.shape.num_elements();
    for (int64_t first = 0; first < count; first += step) {
      const auto bytes = static_cast<size_t>(std::min(step, count - first) * size);
      const std::span<std::byte> piece = std::span(buffer).first(bytes);
      TRY(source.Read(index, first, piece));
      TRY(file.Write(piece));
    }
  }
  return file.Commit();
}

}  // namespace ulmus::checkpoint
