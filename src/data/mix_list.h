// Mix lists, one `label,path` per line, and paths moved by prefix. docs/formats/mix_list.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::data {

// What `{TOKENIZER}` in the paths of OLMo's mixes stands for. OLMo-core: data/mixes, DataMix.build.
inline constexpr std::string_view kDolmaTokenizer = "allenai/dolma3-tokenizer";

struct MixEntry {
  std::string label;  // source
  std::string path;
  friend bool operator==(const MixEntry&, const MixEntry&) = default;
};

// Entries in the order of the list, which is the order of instances. Messages name `origin` and the
// line. kInvalidArgument for a line without label or path, or with another placeholder.
Result<std::vector<MixEntry>> ParseMixList(std::string_view text, std::string_view origin,
                                           std::string_view tokenizer = kDolmaTokenizer);
Result<std::vector<MixEntry>> ReadMixList(const Path& path,
                                          std::string_view tokenizer = kDolmaTokenizer);

// Paths that begin with `from` begin with `to` instead.
struct PathRemap {
  std::string from;
  std::string to;
};
// "FROM=TO". kInvalidArgument without `=` or with nothing before it.
Result<PathRemap> ParsePathRemap(std::string_view text);
// The longest prefix that fits is replaced; none: unchanged.
std::string RemapPath(std::string_view path, std::span<const PathRemap> remaps);

// A path of a list as a local file: remapped, then, if relative, below `base`. kInvalidArgument for
// what is still an address ("s3://..."), with how to remap it.
Result<Path> LocalPath(std::string_view path, const Path& base, std::span<const PathRemap> remaps);

}  // namespace ulmus::data
