#include "data/sniff.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/log.h"
#include "data/parallel.h"
#include "data/token_file.h"

namespace ulmus::data {
namespace {

constexpr int64_t kBlockBytes = 8 << 10;
// Fewer tokens can have any width by chance.
constexpr int64_t kMinTokens = 32;
constexpr DType kWidths[] = {DType::kU8, DType::kU16, DType::kU32, DType::kU64};

// Blocks spread over the data, each starting at a multiple of 8 bytes.
struct Sample {
  std::vector<std::vector<std::byte>> blocks;
};

Result<Sample> TakeSample(const TokenFile& file, int64_t blocks) {
  const int64_t first = file.data_offset();
  const int64_t size = file.size_bytes() - first;
  const int64_t count = std::clamp<int64_t>(size / kBlockBytes, size > 0 ? 1 : 0, blocks);
  Sample sample;
  for (int64_t i = 0; i < count; ++i) {
    // The first block at the start, the last one at the end.
    const int64_t span = size - std::min(size, kBlockBytes);
    const int64_t offset = count == 1 ? 0 : span / (count - 1) * i / 8 * 8;
    const int64_t bytes = count == 1 ? size : std::min(kBlockBytes, size - offset);
    sample.blocks.emplace_back(static_cast<size_t>(bytes));
    TRY(file.ReadBytes(first + offset, sample.blocks.back()));
  }
  return sample;
}

struct Counts {
  int64_t tokens = 0;
  int64_t outside = 0;
  int64_t eos = 0;
  int64_t odd = 0;       // tokens at odd places
  int64_t odd_high = 0;  // of those, no more than the high half of an id
  int64_t odd_tiny = 0;  // of those, below 16: the high half of an id of any tokenizer
  bool varied = false;   // not all the same
};

Counts Count(const Sample& sample, int64_t width, const TokenizerIds& ids) {
  Counts counts;
  std::optional<uint64_t> first;
  const auto vocab = static_cast<uint64_t>(ids.vocab_size);
  const uint64_t high = width >= 8 ? 0 : (vocab - 1) >> (8 * width);
  for (const std::vector<std::byte>& block : sample.blocks) {
    const int64_t count = static_cast<int64_t>(block.size()) / width;
    for (int64_t i = 0; i < count; ++i) {
      uint64_t token = 0;  // little-endian, as the file
      std::memcpy(&token, block.data() + i * width, static_cast<size_t>(width));
      if (!first) first = token;
      ++counts.tokens;
      counts.varied = counts.varied || token != *first;
      counts.outside += token >= vocab;
      counts.eos += token == static_cast<uint64_t>(ids.eos);
      counts.odd += i % 2;
      counts.odd_high += i % 2 != 0 && token <= high;
      counts.odd_tiny += i % 2 != 0 && token < 16;
    }
  }
  return counts;
}

// Whether the sample speaks for integers of so many bytes.
bool IsLikely(const Counts& counts, int64_t width, const TokenizerIds& ids) {
  if (counts.tokens < kMinTokens || !counts.varied || counts.outside > 0) return false;
  const bool holds_vocabulary = width >= 8 || ids.vocab_size <= int64_t{1} << (8 * width);
  // Too narrow for the vocabulary, nothing is outside: then it must not look like halves either.
  return holds_vocabulary || (width > 1 && 2 * counts.odd_tiny < counts.odd);
}

void Warn(SniffReport& report) {
  constexpr int64_t kEnough = 50'000;  // documents are hardly longer on average
  constexpr double kMaxEosRate = 0.2;
  if (report.num_eos == 0 && report.sampled >= kEnough) {
    report.warnings.push_back(fmt::format(
        "no EOS among {} sampled tokens: documents are very long, or end with another id",
        report.sampled));
  }
  const double rate = report.sampled == 0 ? 0
                                          : static_cast<double>(report.num_eos) /
                                                static_cast<double>(report.sampled);
  if (rate > kMaxEosRate && report.sampled >= kMinTokens)
    report.warnings.push_back(
        fmt::format("{:.0f} % of {} sampled tokens are EOS", 100 * rate, report.sampled));
}

}  // namespace

Result<SniffReport> SniffTokens(const Path& path, DType dtype, const TokenizerIds& ids,
                                int64_t blocks) {
  const auto file = TRY(TokenFile::Open(path, {.dtype = DType::kU8, .map = false}));
  const Sample sample = TRY(TakeSample(*file, blocks));
  const bool is_npy = file->data_offset() > 0;
  SniffReport report;
  report.dtype = is_npy ? file->dtype() : dtype;
  report.size_bytes = file->size_bytes();
  const Counts own = Count(sample, SizeBytes(report.dtype), ids);
  report.sampled = own.tokens;
  report.outside = own.outside;
  report.num_eos = own.eos;
  report.zero_high_half =
      own.odd == 0 ? 0 : static_cast<double>(own.odd_high) / static_cast<double>(own.odd);
  for (DType candidate : kWidths) {
    const int64_t width = SizeBytes(candidate);
    const Counts counts = Count(sample, width, ids);
    // Also of a file that was cut inside a token.
    if (IsLikely(counts, width, ids)) report.likely = candidate;
  }
  Warn(report);
  return report;
}

Status RefuseWrongWidth(const Path& path, const SniffReport& report, const TokenizerIds& ids) {
  const int64_t width = SizeBytes(report.dtype);
  const std::string advice =
      report.likely && SizeBytes(*report.likely) != width
          ? fmt::format("it looks like {}: set dtype = \"{}\"", Name(*report.likely),
                        Name(*report.likely))
          : fmt::format("no width fits: it was cut, is damaged, or comes from another tokenizer");
  if (report.size_bytes % width != 0)
    return DataLossError("{}: {} bytes is not a whole number of {} tokens of {} bytes; {}", path,
                         report.size_bytes, Name(report.dtype), width, advice);
  if (report.outside > 0) {
    return DataLossError(
        "{}: read as {}, {} of {} sampled ids are outside the vocabulary of {}; {}", path,
        Name(report.dtype), report.outside, report.sampled, ids.vocab_size, advice);
  }
  if (report.likely && SizeBytes(*report.likely) > width) {
    return DataLossError(
        "{}: read as {}, {:.0f} % of every second token could be the high half of the one before; "
        "{}",
        path, Name(report.dtype), 100 * report.zero_high_half, advice);
  }
  return Status();
}

namespace {

constexpr int64_t kBlocks = 64;   // of one file
constexpr int64_t kThreads = 16;  // they wait for disks and networks, hardly for cores

Status CheckSome(const Path& path, DType dtype, const TokenizerIds& ids, int64_t blocks) {
  const SniffReport report = TRY(SniffTokens(path, dtype, ids, blocks));
  TRY(RefuseWrongWidth(path, report, ids));
  for (const std::string& warning : report.warnings) LogWarning("{}: {}", path, warning);
  return Status();
}

}  // namespace

Status CheckTokens(const Path& path, DType dtype, const TokenizerIds& ids) {
  return CheckSome(path, dtype, ids, kBlocks);
}

Status CheckAllTokens(std::span<const TokenFileSpec> specs, DType dtype, const TokenizerIds& ids) {
  constexpr int64_t kBlocksInAll = 4096;
  constexpr int64_t kFewest = 4;  // 8192 tokens of 32 bits
  const auto count = static_cast<int64_t>(specs.size());
  const int64_t blocks = std::clamp(kBlocksInAll / std::max<int64_t>(1, count), kFewest, kBlocks);
  return ForAll(count, {.name = "look at tokens", .unit = "files", .threads_at_most = kThreads},
                [&](int64_t i) -> Status {
                  const Path& path = specs[static_cast<size_t>(i)].path;
                  if (!TRY(PathExists(path))) return Status();
                  return CheckSome(path, dtype, ids, blocks);
                });
}

}  // namespace ulmus::data
