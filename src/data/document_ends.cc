#include "data/document_ends.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>

namespace ulmus::data {
namespace {

// Longer lines hold no document: offsets and what little metadata toolkits append.
constexpr size_t kMaxLineBytes = 1 << 20;

// Collects the documents of a sidecar, line by line.
class SidecarReader {
 public:
  SidecarReader(int64_t num_tokens, std::string_view origin)
      : num_tokens_(num_tokens), origin_(origin) {}

  Status Add(std::string_view bytes) {
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, end);
      if (line_.size() + part.size() > kMaxLineBytes)
        return Wrong(fmt::format("is longer than {} bytes", kMaxLineBytes));
      line_ += part;
      if (end == std::string_view::npos) return Status();
      TRY(EndLine());
      bytes.remove_prefix(end + 1);
    }
    return Status();
  }
  Result<std::vector<int64_t>> Finish() {
    if (!line_.empty()) TRY(EndLine());
    return std::move(ends_);
  }

 private:
  Status EndLine() {
    ++number_;
    std::string_view line = line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) TRY(AddDocument(line));
    line_.clear();
    return Status();
  }
  Status AddDocument(std::string_view line) {
    int64_t start = 0;
    int64_t end = 0;
    const char* last = line.data() + line.size();
    const auto first = std::from_chars(line.data(), last, start);
    if (first.ec != std::errc() || first.ptr == last || *first.ptr != ',')
      return Wrong("is not `start,end[,more]`");
    const auto second = std::from_chars(first.ptr + 1, last, end);
    if (second.ec != std::errc() || (second.ptr != last && *second.ptr != ','))
      return Wrong("is not `start,end[,more]`");
    const int64_t expected = ends_.empty() ? 0 : ends_.back();
    if (start != expected || end <= start || end > num_tokens_) {
      return Wrong(
          fmt::format("holds a document of tokens [{}, {}); expected one that starts at {} "
                      "and ends within the file's {} tokens",
                      start, end, expected, num_tokens_));
    }
    ends_.push_back(end);
    return Status();
  }
  Status Wrong(std::string_view what) const {
    return DataLossError("{}:{}: {}; remove the sidecar, or make it anew with its token file",
                         origin_, std::max<int64_t>(number_, 1), what);
  }

  int64_t num_tokens_;
  std::string_view origin_;
  std::string line_;
  int64_t number_ = 0;
  std::vector<int64_t> ends_;
};

// A sidecar of another file would cut documents anywhere: some of its ends must be borders. If all
// documents end with one other token, it is the EOS that is wrong.
Status CompareSomeEnds(const TokenFiles& files, int64_t file, const DocumentRule& rule,
                       const std::vector<int64_t>& ends, const Path& sidecar) {
  constexpr size_t kSamples = 256;
  const size_t step = std::max<size_t>(1, ends.size() / kSamples);
  std::vector<int32_t> lasts;
  size_t wrong = ends.size();  // the first document that ends with another token
  for (size_t i = 0; i < ends.size(); i += step) {
    TRY(files.Read(file, ends[i] - 1, std::span(&lasts.emplace_back(), 1)));
    if (lasts.back() != rule.eos && wrong == ends.size()) wrong = i;
  }
  if (wrong == ends.size()) return Status();
  if (lasts.size() > 1 && std::ranges::count(lasts, lasts.front()) == std::ssize(lasts)) {
    return InvalidArgumentError(
        "{}: the EOS is said to be {}, but all {} documents looked at end with token {}; that is "
        "the EOS to name (data.eos_id, --eos), or the sidecar belongs to another file",
        sidecar, rule.eos, lasts.size(), lasts.front());
  }
  return DataLossError(
      "{}: document {} ends at token {}, but the last token there is {}, not the EOS {}; name "
      "another EOS, or make the sidecar anew with its token file",
      sidecar, wrong, ends[wrong], lasts[wrong / step], rule.eos);
}

}  // namespace

Path SidecarPath(const Path& tokens) { return Path(tokens).replace_extension(".csv.gz"); }

Result<std::vector<int64_t>> ParseSidecar(std::string_view csv, int64_t num_tokens,
                                          std::string_view origin) {
  SidecarReader reader(num_tokens, origin);
  TRY(reader.Add(csv));
  return reader.Finish();
}

Result<std::vector<int64_t>> ReadSidecar(const Path& path, int64_t num_tokens) {
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  const std::unique_ptr<gzFile_s, Close> file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) return ErrnoError(errno == 0 ? ENOMEM : errno, path, "open");
  const std::string origin = path.string();
  SidecarReader reader(num_tokens, origin);
  std::array<char, 1 << 16> buffer;
  while (true) {
    const int count = gzread(file.get(), buffer.data(), static_cast<unsigned>(buffer.size()));
    int code = Z_OK;
    const char* text = gzerror(file.get(), &code);
    if (count < 0 || (code != Z_OK && code != Z_STREAM_END))
      return DataLossError("{}: not a whole gzip file ({}); remove it, or make it anew", path,
                           text);
    if (count == 0) return reader.Finish();
    TRY(reader.Add({buffer.data(), static_cast<size_t>(count)}));
  }
}

Result<std::vector<int64_t>> ScanDocumentEnds(const TokenFiles& files, int64_t file,
                                              const DocumentRule& rule) {
  constexpr int64_t kChunk = 1 << 16;
  const int64_t num_tokens = files.num_tokens(file);
  std::vector<int64_t> ends;
  std::vector<int32_t> tokens(kChunk + 1);  // one more: a BOS decides about the EOS before it
  for (int64_t first = 0; first < num_tokens; first += kChunk) {
    const int64_t count = std::min(kChunk, num_tokens - first);
    const int64_t ahead = std::min(kChunk + 1, num_tokens - first);
    TRY(files.Read(file, first, std::span(tokens).first(static_cast<size_t>(ahead))));
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      if (tokens[at] != rule.eos) continue;
      const bool last = first + i + 1 == num_tokens;
      if (last || rule.IsBorder(tokens[at], tokens[at + 1])) ends.push_back(first + i + 1);
    }
  }
  return ends;
}

Result<std::vector<int64_t>> FindDocumentEnds(const TokenFiles& files, int64_t file,
                                              const DocumentRule& rule) {
  const Path sidecar = SidecarPath(files.spec(file).path);
  if (!TRY(PathExists(sidecar))) return ScanDocumentEnds(files, file, rule);
  std::vector<int64_t> ends = TRY(ReadSidecar(sidecar, files.num_tokens(file)));
  TRY(CompareSomeEnds(files, file, rule, ends, sidecar));
  return ends;
}

}  // namespace ulmus::data
