#include "data/token_files.h"

#include <algorithm>
#include <utility>

namespace ulmus::data {
namespace {

// A fault brings in the pages around it too (the kernel's fault_around_bytes).
constexpr int64_t kFaultAroundBytes = 64 << 10;

Status Missing(const std::vector<Path>& missing, size_t total) {
  constexpr size_t kNamed = 5;
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kNamed); ++i)
    names += (i > 0 ? ", " : "") + missing[i].string();
  if (missing.size() > kNamed) names += ", ...";
  return NotFoundError(
      "{} of {} token files do not exist: {}; check the paths of the mix or index, and that the "
      "file "
      "system is mounted",
      missing.size(), total, names);
}

Result<std::unique_ptr<TokenFile>> OpenMask(const TokenFileSpec& spec, int64_t num_tokens) {
  if (spec.label_mask.empty()) return std::unique_ptr<TokenFile>();
  std::unique_ptr<TokenFile> mask = TRY(TokenFile::Open(spec.label_mask, {.dtype = DType::kBool}));
  if (mask->num_tokens() != num_tokens) {
    return DataLossError("{}: label mask of {} tokens, but {} has {}; they must be of one length",
                         spec.label_mask, mask->num_tokens(), spec.path, num_tokens);
  }
  return mask;
}

}  // namespace

TokenFiles::TokenFiles(std::vector<TokenFileSpec> specs, const TokenFilesOptions& options)
    : specs_(std::move(specs)), options_(options) {}

Result<std::shared_ptr<const TokenFiles>> TokenFiles::Open(std::vector<TokenFileSpec> specs,
                                                           const TokenFilesOptions& options) {
  if (specs.empty())
    return InvalidArgumentError("the dataset has no token files; name at least one");
  std::shared_ptr<TokenFiles> files(new TokenFiles(std::move(specs), options));
  TRY(files->OpenAll());
  return std::shared_ptr<const TokenFiles>(std::move(files));
}

Status TokenFiles::OpenAll() {
  std::vector<Path> missing;
  int64_t mapped_bytes = 0;
  for (const TokenFileSpec& spec : specs_) {
    mapped_bytes += FileSizeBytes(spec.path).value_or(0);
    Result<std::unique_ptr<TokenFile>> file =
        TokenFile::Open(spec.path, {.dtype = options_.dtype,
                                    .vocab_size = options_.vocab_size,
                                    .map = mapped_bytes <= options_.mapped_limit_bytes});
    if (file.status().code() == StatusCode::kNotFound) {
      missing.push_back(spec.path);
      continue;
    }
    files_.push_back(TRY(std::move(file)));
    const int64_t num_tokens = files_.back()->num_tokens();
    if (spec.expected_tokens >= 0 && num_tokens != spec.expected_tokens) {
      return DataLossError(
          "{}: {} tokens, but {} are expected; the file was cut or replaced since its index was "
          "made: "
          "restore it, or make the index anew",
          spec.path, num_tokens, spec.expected_tokens);
    }
    masks_.push_back(TRY(OpenMask(spec, num_tokens)));
  }
  return missing.empty() ? Status() : Missing(missing, specs_.size());
}

int64_t TokenFiles::total_tokens() const {
  int64_t total = 0;
  for (const auto& file : files_) total += file->num_tokens();
  return total;
}

bool TokenFiles::has_label_masks() const {
  return std::any_of(masks_.begin(), masks_.end(),
                     [](const auto& mask) { return mask != nullptr; });
}

void TokenFiles::CountRead(int64_t size_bytes) const {
  const int64_t added = size_bytes + kFaultAroundBytes;
  const int64_t before = read_bytes_.fetch_add(added);
  if (before < options_.resident_limit_bytes && before + added >= options_.resident_limit_bytes) {
    for (const auto& file : files_) file->ReleaseResident();
    for (const auto& mask : masks_) {
      if (mask != nullptr) mask->ReleaseResident();
    }
    read_bytes_.store(0);
  }
}

Status TokenFiles::Read(int64_t i, int64_t first, std::span<int32_t> tokens) const {
  TRY(file(i).Read(first, tokens));
  CountRead(static_cast<int64_t>(tokens.size()) * SizeBytes(file(i).dtype()));
  return Status();
}

Status TokenFiles::ReadMask(int64_t i, int64_t first, std::span<uint8_t> mask) const {
  const auto& file = masks_[static_cast<size_t>(i)];
  if (file == nullptr) {
    std::fill(mask.begin(), mask.end(), uint8_t{1});
    return Status();
  }
  TRY(file->ReadMask(first, mask));
  CountRead(static_cast<int64_t>(mask.size()));
  return Status();
}

}  // namespace ulmus::data
