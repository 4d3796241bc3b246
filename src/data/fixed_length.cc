#include "data/fixed_length.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace ulmus::data {
namespace {

class FixedLengthSource : public InstanceSource {
 public:
  FixedLengthSource(std::shared_ptr<const TokenFiles> files, const FixedLengthOptions& options,
                    std::vector<FixedLengthEntry> entries, FixedLengthIdentity identity)
      : files_(std::move(files)),
        options_(options),
        entries_(std::move(entries)),
        identity_(std::move(identity)) {
    for (const FixedLengthEntry& entry : entries_) {
      num_instances_ += entry.num_instances;
      ends_.push_back(num_instances_);
    }
  }

  int64_t num_instances() const override { return num_instances_; }
  int64_t sequence_length() const override { return options_.sequence_length; }
  int64_t max_target_sequence_length() const override {
    return std::max(options_.sequence_length, options_.max_target_sequence_length);
  }
  const std::string& fingerprint() const override { return identity_.fingerprint; }
  std::string_view fingerprint_version() const override { return identity_.fingerprint_version; }
  std::string_view type() const override { return "fsl"; }
  const TokenFiles* files() const override { return files_.get(); }

  Status Read(int64_t instance, const InstanceRow& row) const override {
    CheckRow(row, options_.sequence_length);
    const Place place = Find(instance);
    if (!row.loss_mask.empty())
      TRY(files_->ReadMask(place.entry->file, place.first_token, row.loss_mask));
    const bool wants_documents = !row.segment_ids.empty() || !row.positions.empty();
    std::vector<int32_t> own;
    std::span<int32_t> tokens = row.tokens;
    if (tokens.empty() && wants_documents) {
      own.resize(static_cast<size_t>(options_.sequence_length));
      tokens = own;
    }
    if (!tokens.empty()) TRY(files_->Read(place.entry->file, place.first_token, tokens));
    if (wants_documents)
      FillDocuments(tokens, options_.sequence_length, options_.ids.documents(), row);
    return Status();
  }

  Result<InstanceOrigin> Describe(int64_t instance) const override {
    const Place place = Find(instance);
    const TokenFileSpec& spec = files_->spec(place.entry->file);
    return InstanceOrigin{.source = spec.label,
                          .pass = place.entry->pass,
                          .ranges = {{spec.path, place.first_token, options_.sequence_length}}};
  }

 private:
  struct Place {
    const FixedLengthEntry* entry;
    int64_t first_token;
  };

  Place Find(int64_t instance) const {
    CHECK(instance >= 0 && instance < num_instances_, "instance {} of {}", instance,
          num_instances_);
    const auto it = std::upper_bound(ends_.begin(), ends_.end(), instance);
    const FixedLengthEntry& entry = entries_[static_cast<size_t>(it - ends_.begin())];
    const int64_t in_entry = instance - (*it - entry.num_instances);
    return {&entry, in_entry * options_.sequence_length};
  }

  std::shared_ptr<const TokenFiles> files_;
  FixedLengthOptions options_;
  std::vector<FixedLengthEntry> entries_;
  std::vector<int64_t> ends_;  // instances up to and including entry i
  int64_t num_instances_ = 0;
  FixedLengthIdentity identity_;
};

FixedLengthIdentity OlmoCoreIdentity(const TokenFiles& files, const FixedLengthOptions& options) {
  const std::pair<std::string, std::string> fields[] = {
      {"vocab_size", std::to_string(options.ids.vocab_size)},
      {"pad_token_id", std::to_string(options.ids.pad)},
      {"eos_token_id", std::to_string(options.ids.eos)},
      {"dtype", PythonText(files.options().dtype)},
      {"max_target_sequence_length", PythonOrNone(options.max_target_sequence_length, 0)},
      {"bos_token_id", PythonOrNone(options.ids.bos, -1)},
  };
  std::vector<FileSize> sizes;
  for (int64_t i = 0; i < files.size(); ++i)
    sizes.push_back({files.spec(i).path, files.file(i).size_bytes()});
  return {OlmoCoreFingerprint("NumpyFSLDataset", fields, sizes), "v2.0"};
}

}  // namespace

Status Validate(const FixedLengthOptions& options) {
  const int64_t length = options.sequence_length;
  const int64_t target = options.max_target_sequence_length;
  if (length <= 0) return InvalidArgumentError("sequence_length = {}: must be at least 1", length);
  if (target != 0 && (target < length || target % length != 0)) {
    return InvalidArgumentError(
        "max_target_sequence_length = {}: must be 0 or a multiple of sequence_length {}", target,
        length);
  }
  return Status();
}

int64_t FixedLengthInstances(int64_t num_tokens, const FixedLengthOptions& options) {
  const int64_t unit = std::max(options.sequence_length, options.max_target_sequence_length);
  return num_tokens / unit * (unit / options.sequence_length);
}

Result<std::unique_ptr<InstanceSource>> MakeFixedLength(std::shared_ptr<const TokenFiles> files,
                                                        const FixedLengthOptions& options,
                                                        std::vector<FixedLengthEntry> entries,
                                                        FixedLengthIdentity identity) {
  TRY(Validate(options));
  int64_t num_instances = 0;
  for (const FixedLengthEntry& entry : entries) {
    CHECK(entry.num_instances <= FixedLengthInstances(files->num_tokens(entry.file), options),
          "{} instances of file {}", entry.num_instances, entry.file);
    num_instances += entry.num_instances;
  }
  if (num_instances == 0) {
    return InvalidArgumentError(
        "the dataset has no instance: {} files hold {} tokens in all, but none has {}; shorten "
        "sequence_length or add data",
        files->size(), files->total_tokens(),
        std::max(options.sequence_length, options.max_target_sequence_length));
  }
  std::erase_if(entries, [](const FixedLengthEntry& entry) { return entry.num_instances == 0; });
  return std::unique_ptr<InstanceSource>(std::make_unique<FixedLengthSource>(
      std::move(files), options, std::move(entries), std::move(identity)));
}

Result<std::unique_ptr<InstanceSource>> MakeFixedLength(std::shared_ptr<const TokenFiles> files,
                                                        const FixedLengthOptions& options) {
  TRY(Validate(options));
  std::vector<FixedLengthEntry> entries;
  for (int64_t i = 0; i < files->size(); ++i)
    entries.push_back(
        {.file = i, .num_instances = FixedLengthInstances(files->num_tokens(i), options)});
  FixedLengthIdentity identity = OlmoCoreIdentity(*files, options);
  const int64_t total_tokens = files->total_tokens();
  auto source =
      TRY(MakeFixedLength(std::move(files), options, std::move(entries), std::move(identity)));
  const int64_t used = source->num_instances() * options.sequence_length;
  LogInfo(
      "dataset: {} instances of {} tokens; {} tokens after the last full one of their file are "
      "dropped",
      source->num_instances(), options.sequence_length, total_tokens - used);
  return source;
}

}  // namespace ulmus::data
