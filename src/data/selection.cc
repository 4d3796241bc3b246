#include "data/selection.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace ulmus::data {
namespace {

constexpr int64_t kIdBytes = 4;

class Selection : public InstanceSource {
 public:
  Selection(std::unique_ptr<InstanceSource> all, MappedFile ids)
      : all_(std::move(all)), ids_(std::move(ids)) {
    Sha256 hash;
    hash.Update(all_->fingerprint());
    hash.Update(ids_.bytes());
    fingerprint_ = "sha256:" + hash.hex();
  }

  int64_t num_instances() const override { return ids_.size_bytes() / kIdBytes; }
  int64_t sequence_length() const override { return all_->sequence_length(); }
  const std::string& fingerprint() const override { return fingerprint_; }
  std::string_view fingerprint_version() const override { return "selection-1"; }
  std::string_view type() const override { return all_->type(); }
  const TokenFiles* files() const override { return all_->files(); }

  Status Read(int64_t instance, const InstanceRow& row) const override {
    return all_->Read(IdOf(instance), row);
  }
  Result<InstanceOrigin> Describe(int64_t instance) const override {
    return all_->Describe(IdOf(instance));
  }

  int64_t IdOf(int64_t instance) const {
    CHECK(instance >= 0 && instance < num_instances(), "instance {} of {}", instance,
          num_instances());
    uint32_t id = 0;
    std::memcpy(&id, ids_.bytes().data() + instance * kIdBytes, kIdBytes);
    return id;
  }

 private:
  std::unique_ptr<InstanceSource> all_;
  MappedFile ids_;
  std::string fingerprint_;
};

}  // namespace

Result<std::unique_ptr<InstanceSource>> MakeSelection(std::unique_ptr<InstanceSource> all,
                                                      const Path& ids) {
  if (all->instances_per_chunk() != 1) {
    return InvalidArgumentError(
        "a selection of instances would tear apart the {} pieces of {} tokens that "
        "max_target_sequence_length keeps together; leave one of the two out",
        all->instances_per_chunk(), all->sequence_length());
  }
  MappedFile file = TRY(MappedFile::Open(ids));
  if (file.size_bytes() == 0 || file.size_bytes() % kIdBytes != 0) {
    return DataLossError(
        "{}: {} bytes; expected at least one instance number of {} bytes (little-endian u32, no "
        "header) and no rest",
        ids, file.size_bytes(), kIdBytes);
  }
  const int64_t num_all = all->num_instances();
  auto selection = std::make_unique<Selection>(std::move(all), std::move(file));
  for (int64_t i = 0; i < selection->num_instances(); ++i) {
    if (selection->IdOf(i) >= num_all) {
      return DataLossError(
          "{}: number {} is {}, but the dataset has the instances 0 to {}; was the file made for "
          "other data or another sequence_length?",
          ids, i, selection->IdOf(i), num_all - 1);
    }
  }
  return std::unique_ptr<InstanceSource>(std::move(selection));
}

}  // namespace ulmus::data
