// A TensorSource whose tensors are in memory: for tests of everything that reads or writes one.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "checkpoint/tensor_source.h"
#include "tensor/host_tensor.h"

namespace ulmus::checkpoint {

class MemorySource : public TensorSource {
 public:
  explicit MemorySource(std::map<std::string, HostTensor> tensors,
                        std::map<std::string, std::string> side_files = {})
      : side_files_(std::move(side_files)) {
    for (auto& [name, tensor] : tensors) {
      infos_.push_back({name, tensor.type()});
      values_.push_back(std::move(tensor));
    }
  }

  std::span<const TensorInfo> tensors() const override { return infos_; }
  Status Read(int64_t index, int64_t first, std::span<std::byte> out) const override {
    const HostTensor& tensor = values_[static_cast<size_t>(index)];
    const auto begin = static_cast<size_t>(first * SizeBytes(tensor.dtype()));
    CHECK(begin + out.size() <= tensor.bytes().size(), "read outside of the tensor");
    if (!out.empty()) std::memcpy(out.data(), tensor.bytes().data() + begin, out.size());
    return Status();
  }
  std::vector<std::string> SideFiles() const override {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : side_files_) names.push_back(name);
    return names;
  }
  Result<std::string> LoadSideFile(std::string_view name) const override {
    const auto it = side_files_.find(std::string(name));
    if (it == side_files_.end()) return NotFoundError("{}: no such side file", name);
    return it->second;
  }

  const HostTensor& value(int64_t index) const { return values_[static_cast<size_t>(index)]; }

 private:
  std::vector<TensorInfo> infos_;
  std::vector<HostTensor> values_;
  std::map<std::string, std::string> side_files_;
};

}  // namespace ulmus::checkpoint
