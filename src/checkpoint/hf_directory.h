// A Hugging Face model directory: weights in safetensors files with an index, and side files
// (config.json, tokenizer). Reading trusts nothing; writing appears complete or not at all.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/atomic_directory.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/tensor_source.h"

namespace ulmus::checkpoint {

// The tensors of all files. Side files are the small texts beside them, and the layout under
// kLayoutFileName, so that a copy to another format can be turned back into the same bytes.
class HfDirectory : public TensorSource {
 public:
  // Every name of the index is checked, and looked for, before any weight file is opened; all
  // headers are checked before this returns. kNotFound names what is absent, kDataLoss what does
  // not agree.
  static Result<std::unique_ptr<HfDirectory>> Open(const Path& folder);

  std::span<const TensorInfo> tensors() const override { return infos_; }
  Status Read(int64_t index, int64_t first, std::span<std::byte> out) const override;
  std::vector<int64_t> StorageOrder() const override;
  std::vector<std::string> SideFiles() const override { return side_files_; }
  Result<std::string> LoadSideFile(std::string_view name) const override;

  const Path& folder() const { return folder_; }
  const HfLayout& layout() const { return layout_; }

 private:
  struct Place {
    size_t file;
    size_t tensor;
  };
  HfDirectory() = default;
  Status Load(const Path& folder);
  Path folder_;
  HfLayout layout_;
  std::vector<SafetensorsFile> files_;
  std::vector<TensorInfo> infos_;
  std::vector<Place> places_;  // of each of infos_
  std::vector<std::string> side_files_;
};

// True if the folder holds safetensors weights as Hugging Face names them.
bool LooksLikeHfDirectory(const Path& folder);

struct HfSinkOptions {
  bool overwrite = false;
};

// Writes a directory of this layout; tensors arrive in the order of layout.Tensors(). Commit()
// re-opens what was written as a stranger would and compares it before it appears.
class HfSink : public TensorSink {
 public:
  static Result<std::unique_ptr<HfSink>> Create(const Path& folder, HfLayout layout,
                                                const HfSinkOptions& options);

  Status Begin(const TensorInfo& tensor) override;
  Status Append(std::span<const std::byte> bytes) override;
  Status AddSideFile(std::string_view name, std::string_view bytes) override;
  Status Commit() override;

 private:
  HfSink(AtomicDirectory directory, HfLayout layout)
      : directory_(std::move(directory)), layout_(std::move(layout)) {}
  Status StartFile();
  Status FinishFile();
  Status Write(std::span<const std::byte> bytes);
  Status CheckComplete() const;

  AtomicDirectory directory_;
  HfLayout layout_;
  FileDescriptor fd_;  // of the file being written
  Path path_;
  size_t file_ = 0;            // index of it
  size_t tensor_ = 0;          // next to begin in it
  int64_t missing_bytes_ = 0;  // of the tensor begun
  int64_t unflushed_bytes_ = 0;
  int64_t file_bytes_ = 0;
};

}  // namespace ulmus::checkpoint
