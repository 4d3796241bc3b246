// One safetensors file: read in parts, written in one pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/contained_file.h"
#include "checkpoint/safetensors_header.h"

namespace ulmus::checkpoint {

// An open file whose header has been checked. Any thread.
class SafetensorsFile {
 public:
  // kDataLoss with the file and the fault, as ParseSafetensorsHeader; nothing is allocated for a
  // header before the file is known to hold it.
  static Result<SafetensorsFile> Open(const Path& path);

  const Path& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  // The header's bytes as they are, padding included.
  const std::string& header_text() const { return header_text_; }
  // Bytes of a tensor of the header, from element `first` on; CHECKs that they are inside.
  Status Read(const SafetensorsTensor& tensor, int64_t first, std::span<std::byte> out) const;

 private:
  SafetensorsFile(RandomAccessFile file, std::string header_text, SafetensorsHeader header)
      : file_(std::move(file)),
        header_text_(std::move(header_text)),
        header_(std::move(header)),
        data_begin_(static_cast<int64_t>(8 + header_text_.size())) {}
  RandomAccessFile file_;
  std::string header_text_;
  SafetensorsHeader header_;
  int64_t data_begin_;
};

// The tensors of one file, for files that stand alone (stored logits, intermediates).
class SafetensorsSource : public TensorSource {
 public:
  static Result<std::unique_ptr<SafetensorsSource>> Open(const Path& path);

  std::span<const TensorInfo> tensors() const override { return infos_; }
  Status Read(int64_t index, int64_t first, std::span<std::byte> out) const override;
  std::vector<int64_t> StorageOrder() const override;
  const SafetensorsFile& file() const { return file_; }

 private:
  explicit SafetensorsSource(SafetensorsFile file);
  SafetensorsFile file_;
  std::vector<TensorInfo> infos_;
  std::vector<size_t> position_;  // of each in file_.header().tensors
};

// Writes `tensors` in this order into one file that appears when complete. For small files; models
// go through HfSink.
Status WriteSafetensors(const Path& path, const TensorSource& source);

}  // namespace ulmus::checkpoint
