#include "data/mix_list.h"

#include <utility>

namespace ulmus::data {
namespace {

// The largest published mix has 12,253 lines, about 2 MB.
constexpr int64_t kMaxMixListBytes = int64_t{256} << 20;
constexpr std::string_view kPlaceholder = "{TOKENIZER}";

std::string_view Strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string Replace(std::string_view path, std::string_view tokenizer) {
  std::string replaced;
  size_t at;
  while ((at = path.find(kPlaceholder)) != std::string_view::npos) {
    replaced += path.substr(0, at);
    replaced += tokenizer;
    path.remove_prefix(at + kPlaceholder.size());
  }
  return replaced.append(path);
}

Result<MixEntry> ParseLine(std::string_view line, std::string_view tokenizer) {
  const size_t comma = line.find(',');
  if (comma == std::string_view::npos)
    return InvalidArgumentError("expected `label,path`, found \"{}\"", line.substr(0, 80));
  const std::string_view label = Strip(line.substr(0, comma));
  const std::string_view path = Strip(line.substr(comma + 1));
  if (label.empty() || path.empty())
    return InvalidArgumentError("{} is empty in \"{}\"; expected `label,path`",
                                label.empty() ? "the label" : "the path", line.substr(0, 80));
  if (path.find('\0') != std::string_view::npos)
    return InvalidArgumentError("the path holds a NUL byte; the list is damaged");
  std::string replaced = Replace(path, tokenizer);
  if (replaced.find('{') != std::string::npos)
    return InvalidArgumentError("unknown placeholder in \"{}\"; {} is the only one",
                                path.substr(0, 80), kPlaceholder);
  return MixEntry{std::string(label), std::move(replaced)};
}

}  // namespace

Result<std::vector<MixEntry>> ParseMixList(std::string_view text, std::string_view origin,
                                           std::string_view tokenizer) {
  std::vector<MixEntry> entries;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = Strip(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    Result<MixEntry> entry = ParseLine(line, tokenizer);
    if (!entry.ok()) return entry.status().WithContext(fmt::format("{}:{}", origin, number));
    entries.push_back(std::move(*entry));
  }
  if (entries.empty())
    return InvalidArgumentError("{}: no file in the mix; expected lines `label,path`", origin);
  return entries;
}

Result<std::vector<MixEntry>> ReadMixList(const Path& path, std::string_view tokenizer) {
  return ParseMixList(TRY(ReadFile(path, kMaxMixListBytes)), path.string(), tokenizer);
}

Result<PathRemap> ParsePathRemap(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return InvalidArgumentError("path remap \"{}\": expected FROM=TO, prefixes of paths", text);
  return PathRemap{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

std::string RemapPath(std::string_view path, std::span<const PathRemap> remaps) {
  const PathRemap* best = nullptr;
  for (const PathRemap& remap : remaps) {
    if (path.starts_with(remap.from) && (best == nullptr || remap.from.size() > best->from.size()))
      best = &remap;
  }
  if (best == nullptr) return std::string(path);
  return best->to + std::string(path.substr(best->from.size()));
}

Result<Path> LocalPath(std::string_view path, const Path& base, std::span<const PathRemap> remaps) {
  const std::string moved = RemapPath(path, remaps);
  if (const size_t scheme = moved.find("://"); scheme != std::string::npos) {
    const std::string_view bucket = std::string_view(moved).substr(0, moved.find('/', scheme + 3));
    return InvalidArgumentError(
        "{}: only local files are read; copy it and remap its prefix ({}=/local/folder)", moved,
        bucket);
  }
  const Path local(moved);
  return local.is_absolute() || base.empty() ? local : base / local;
}

}  // namespace ulmus::data
