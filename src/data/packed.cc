#include "data/packed.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "data/document_ends.h"
#include "data/packing.h"
#include "data/packing_file.h"
#include "data/parallel.h"
#include "data/python_shuffle.h"

namespace ulmus::data {
namespace {

struct PackedIdentity {
  std::string fingerprint;
  std::string_view type;
};

class PackedSource : public InstanceSource {
 public:
  PackedSource(std::shared_ptr<const TokenFiles> files, int64_t sequence_length,
               const TokenizerIds& ids, PackedPlan plan, PackedIdentity identity)
      : files_(std::move(files)),
        sequence_length_(sequence_length),
        ids_(ids),
        plan_(std::move(plan)),
        identity_(std::move(identity)) {}

  int64_t num_instances() const override { return static_cast<int64_t>(plan_.ends().size()); }
  int64_t sequence_length() const override { return sequence_length_; }
  const std::string& fingerprint() const override { return identity_.fingerprint; }
  std::string_view type() const override { return identity_.type; }
  const TokenFiles* files() const override { return files_.get(); }

  Status Read(int64_t instance, const InstanceRow& row) const override {
    CheckRow(row, sequence_length_);
    size_t at = 0;
    int32_t segment = kPaddingSegment;
    for (const PackedPiece& piece : Of(instance)) {
      const auto count = static_cast<size_t>(piece.num_tokens);
      if (!row.tokens.empty())
        TRY(files_->Read(piece.file, piece.first_token, row.tokens.subspan(at, count)));
      if (!row.loss_mask.empty())
        TRY(files_->ReadMask(piece.file, piece.first_token, row.loss_mask.subspan(at, count)));
      FillSegment(row, at, count, ++segment);
      at += count;
    }
    const auto rest = static_cast<size_t>(sequence_length_) - at;
    if (!row.tokens.empty())
      std::fill_n(row.tokens.begin() + static_cast<ptrdiff_t>(at), rest,
                  static_cast<int32_t>(ids_.pad));
    if (!row.loss_mask.empty())
      std::fill_n(row.loss_mask.begin() + static_cast<ptrdiff_t>(at), rest, uint8_t{0});
    FillSegment(row, at, rest, kPaddingSegment);
    return Status();
  }

  Result<InstanceOrigin> Describe(int64_t instance) const override {
    InstanceOrigin origin;
    for (const PackedPiece& piece : Of(instance)) {
      const TokenFileSpec& spec = files_->spec(piece.file);
      if (origin.ranges.empty()) origin.source = spec.label;
      origin.ranges.push_back({spec.path, piece.first_token, piece.num_tokens});
    }
    return origin;
  }

 private:
  std::span<const PackedPiece> Of(int64_t instance) const {
    CHECK(instance >= 0 && instance < num_instances(), "instance {} of {}", instance,
          num_instances());
    const auto at = static_cast<size_t>(instance);
    const int64_t first = at == 0 ? 0 : plan_.ends()[at - 1];
    return plan_.pieces().subspan(static_cast<size_t>(first),
                                  static_cast<size_t>(plan_.ends()[at] - first));
  }

  static void FillSegment(const InstanceRow& row, size_t at, size_t count, int32_t segment) {
    for (size_t i = 0; i < count; ++i) {
      if (!row.segment_ids.empty()) row.segment_ids[at + i] = segment;
      if (!row.positions.empty()) row.positions[at + i] = static_cast<int32_t>(i);
    }
  }

  std::shared_ptr<const TokenFiles> files_;
  int64_t sequence_length_;
  TokenizerIds ids_;
  PackedPlan plan_;
  PackedIdentity identity_;
};

struct Pieces {
  std::vector<PackedPiece> pieces;  // instance by instance
  std::vector<int64_t> ends;        // pieces up to and including instance i
};

void AddPieces(std::vector<PackedPiece>& pieces, int64_t file, const std::vector<int64_t>& ends,
               int64_t sequence_length, LongDocuments policy) {
  int64_t start = 0;
  for (int64_t end : ends) {
    int64_t first = start;
    do {
      pieces.push_back(
          {.first_token = first,
           .file = static_cast<int32_t>(file),
           .num_tokens = static_cast<int32_t>(std::min(sequence_length, end - first))});
      first += sequence_length;
    } while (policy == LongDocuments::kFragment && first < end);
    start = end;
  }
}

// Pieces of the files [begin, end), packed; or, without packing, each an instance of its own.
Result<Pieces> PiecesOfGroup(const TokenFiles& files, int64_t begin, int64_t end,
                             const PackedOptions& options, bool pack) {
  std::vector<PackedPiece> found;
  for (int64_t file = begin; file < end; ++file) {
    const auto ends = TRY(FindDocumentEnds(files, file, options.ids.documents()));
    AddPieces(found, file, ends, options.sequence_length, options.long_documents);
  }
  Pieces pieces;
  if (!pack) {
    for (size_t i = 0; i < found.size(); ++i) pieces.ends.push_back(static_cast<int64_t>(i) + 1);
    pieces.pieces = std::move(found);
    return pieces;
  }
  std::vector<int64_t> lengths;
  lengths.reserve(found.size());
  for (const PackedPiece& piece : found) lengths.push_back(piece.num_tokens);
  const Packing packing = PackBestFit(lengths, options.sequence_length);
  pieces.pieces.reserve(found.size());
  for (int64_t document : packing.documents)
    pieces.pieces.push_back(found[static_cast<size_t>(document)]);
  pieces.ends.assign(packing.first.begin() + 1, packing.first.end());
  return pieces;
}

// Groups are independent: threads take them one by one, the results keep their order.
Result<Pieces> PiecesOfAll(const TokenFiles& files, const PackedOptions& options, bool pack) {
  const int64_t num_groups =
      (files.size() + options.source_group_size - 1) / options.source_group_size;
  std::vector<Pieces> groups(static_cast<size_t>(num_groups));
  TRY(ForAll(num_groups, {.name = "find documents", .unit = "groups"},
             [&](int64_t group) -> Status {
               const int64_t begin = group * options.source_group_size;
               const int64_t end = std::min(files.size(), begin + options.source_group_size);
               Result<Pieces> pieces = PiecesOfGroup(files, begin, end, options, pack);
               if (!pieces.ok()) return pieces.status();
               groups[static_cast<size_t>(group)] = std::move(*pieces);
               return Status();
             }));
  Pieces all;
  for (const Pieces& pieces : groups) {
    const auto before = static_cast<int64_t>(all.pieces.size());
    all.pieces.insert(all.pieces.end(), pieces.pieces.begin(), pieces.pieces.end());
    for (int64_t end : pieces.ends) all.ends.push_back(before + end);
  }
  return all;
}

// From the cache if it is there, else made and kept there. Without the cache a start is slow, not
// wrong, so that nothing about it is an error.
Result<PackedPlan> PlanOf(const TokenFiles& files, const PackedOptions& options, bool pack) {
  const auto make = [&]() -> Result<PackedPlan> {
    Pieces all = TRY(PiecesOfAll(files, options, pack));
    return PackedPlan(std::move(all.pieces), std::move(all.ends));
  };
  if (options.cache_dir.empty() || files.total_tokens() < options.cache_from_tokens) return make();
  const std::string key = TRY(PackingKey(
      fmt::format("packed={} length={} eos={} bos={} dtype={} fragment={} group={}", pack,
                  options.sequence_length, options.ids.eos, options.ids.bos,
                  Name(files.options().dtype), options.long_documents == LongDocuments::kFragment,
                  options.source_group_size),
      files));
  const Path path = options.cache_dir / PackingFileName(key);
  Result<PackedPlan> kept = PackedPlan::Open(path, key, files);
  if (kept.ok()) return kept;
  if (kept.status().code() != StatusCode::kNotFound)
    LogWarning("made again: {}", kept.status().message());
  PackedPlan plan = TRY(make());
  if (plan.ends().empty()) return plan;
  if (const Status status = WritePackedPlan(path, key, plan); !status.ok()) {
    LogWarning("the next start looks for all documents again: {}", status.message());
    return plan;
  }
  // Mapped, it takes no memory of its own.
  Result<PackedPlan> mapped = PackedPlan::Open(path, key, files);
  return mapped.ok() ? std::move(mapped) : Result<PackedPlan>(std::move(plan));
}

std::string Fingerprint(const TokenFiles& files, const PackedOptions& options, bool pack) {
  std::vector<std::pair<std::string, std::string>> fields = {
      {"vocab_size", std::to_string(options.ids.vocab_size)},
      {"pad_token_id", std::to_string(options.ids.pad)},
      {"eos_token_id", std::to_string(options.ids.eos)},
      {"dtype", PythonText(files.options().dtype)},
  };
  if (pack) {
    const bool truncate = options.long_documents == LongDocuments::kTruncate;
    fields.emplace_back("long_doc_strategy", truncate ? "truncate" : "fragment");
  } else {
    fields.emplace_back("max_target_sequence_length", "None");
  }
  fields.emplace_back("bos_token_id", PythonOrNone(options.ids.bos, -1));
  fields.emplace_back("sequence_length", std::to_string(options.sequence_length));
  if (pack && options.source_group_size > 1)
    fields.emplace_back("source_group_size", std::to_string(options.source_group_size));
  std::vector<FileSize> sizes;
  for (int64_t i = 0; i < files.size(); ++i)
    sizes.push_back({files.spec(i).path, files.file(i).size_bytes()});
  return OlmoCoreFingerprint(pack ? "NumpyPackedFSLDataset" : "NumpyPaddedFSLDataset", fields,
                             sizes);
}

Status Validate(const PackedOptions& options) {
  constexpr int64_t kMaxLength = int64_t{1} << 24;  // tables by length are kept while packing
  if (options.sequence_length <= 0 || options.sequence_length > kMaxLength)
    return InvalidArgumentError("sequence_length = {}: must be 1 .. {}", options.sequence_length,
                                kMaxLength);
  if (options.source_group_size <= 0)
    return InvalidArgumentError("source_group_size = {}: must be at least 1",
                                options.source_group_size);
  return Status();
}

Result<std::unique_ptr<InstanceSource>> MakeOfDocuments(std::shared_ptr<const TokenFiles> files,
                                                        const PackedOptions& options, bool pack) {
  TRY(Validate(options));
  PackedPlan plan = TRY(PlanOf(*files, options, pack));
  if (plan.ends().empty()) {
    return InvalidArgumentError(
        "the dataset has no document: {} files hold {} tokens in all, but no EOS ({}); check "
        "eos_token_id and dtype",
        files->size(), files->total_tokens(), options.ids.eos);
  }
  int64_t used = 0;
  for (const PackedPiece& piece : plan.pieces()) used += piece.num_tokens;
  const auto num_instances = static_cast<int64_t>(plan.ends().size());
  LogInfo(
      "dataset: {} instances of {} tokens from {} documents or pieces; {} tokens of padding, {} "
      "tokens of the files are in no instance",
      num_instances, options.sequence_length, plan.pieces().size(),
      num_instances * options.sequence_length - used, files->total_tokens() - used);
  PackedIdentity identity{Fingerprint(*files, options, pack), pack ? "packed_fsl" : "padded_fsl"};
  return std::unique_ptr<InstanceSource>(
      std::make_unique<PackedSource>(std::move(files), options.sequence_length, options.ids,
                                     std::move(plan), std::move(identity)));
}

}  // namespace

Result<std::unique_ptr<InstanceSource>> MakePacked(std::shared_ptr<const TokenFiles> files,
                                                   const PackedOptions& options) {
  return MakeOfDocuments(std::move(files), options, /*pack=*/true);
}

Result<std::unique_ptr<InstanceSource>> MakePadded(std::shared_ptr<const TokenFiles> files,
                                                   int64_t sequence_length, const TokenizerIds& ids,
                                                   Path cache_dir) {
  return MakeOfDocuments(
      std::move(files),
      {.sequence_length = sequence_length, .ids = ids, .cache_dir = std::move(cache_dir)},
      /*pack=*/false);
}

std::vector<TokenFileSpec> PermuteFiles(std::vector<TokenFileSpec> specs, uint64_t seed) {
  std::vector<TokenFileSpec> permuted;
  for (int64_t i : PythonShuffle(seed, static_cast<int64_t>(specs.size())))
    permuted.push_back(specs[static_cast<size_t>(i)]);
  return permuted;
}

}  // namespace ulmus::data
