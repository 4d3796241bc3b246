#include "apps/data_input.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "data/manifest.h"
#include "data/sniff.h"
#include "data/token_file_identity.h"

namespace ulmus::apps {
namespace {

// What is known of the tokens: from a flag, or from the inputs, which must agree.
template <class T>
class Property {
 public:
  Property(std::string_view flag, const std::optional<T>& given) : flag_(flag), value_(given) {}

  Status Take(const T& said, const Path& by) {
    if (!value_) {
      value_ = said;
      by_ = by.string();
    }
    if (*value_ == said) return Status();
    if (by_.empty()) {
      return InvalidArgumentError("{} {}: {} says {}; leave {} out", flag_, *value_, by, said,
                                  flag_);
    }
    return InvalidArgumentError(
        "{} says {} {}, but {} says {}: look at files of different tokens one after the other", by,
        flag_.substr(2), said, by_, *value_);
  }
  T value_or(const T& otherwise) const { return value_.value_or(otherwise); }
  // Ids: below the vocabulary. A default that does not fit asks for the flag.
  Status CheckBelow(int64_t vocab_size, int64_t id, int64_t least) const {
    if (id >= least && id < vocab_size) return Status();
    return InvalidArgumentError("{} {}: must be from {} to {}, below the vocabulary of {}{}", flag_,
                                id, least, vocab_size - 1, vocab_size,
                                value_ ? "" : fmt::format("; give {}", flag_));
  }

 private:
  std::string_view flag_;
  std::optional<T> value_;
  std::string by_;  // the input that said so; none: the flag
};

struct Lists {
  const DataInput& input;
  ResolvedInput& resolved;
  std::vector<data::PathRemap> remaps = {};
  Property<std::string> dtype{"--dtype", input.dtype};
  Property<int64_t> vocab_size{"--vocab-size", input.vocab_size};
  Property<int64_t> eos{"--eos", input.eos};

  Path BaseOf(const Path& list) const {
    return input.base.empty() ? list.parent_path() : Path(input.base);
  }
  Status Add(std::string_view listed, const std::string& label, const Path& base,
             int64_t expected_tokens = -1) {
    Path local = TRY(data::LocalPath(listed, base, remaps));
    const bool is_address = listed.find("://") != std::string_view::npos;
    resolved.listed.push_back(is_address ? std::string(listed) : local.string());
    resolved.specs.push_back(
        {.path = std::move(local), .label = label, .expected_tokens = expected_tokens});
    return Status();
  }
};

Status AddMix(Lists& lists, const Path& path) {
  for (const data::MixEntry& entry : TRY(data::ReadMixList(path, lists.input.mix_tokenizer)))
    TRY(lists.Add(entry.path, entry.label, lists.BaseOf(path)));
  return Status();
}

Status AddManifest(Lists& lists, const Path& path) {
  TRY(data::CheckAgainstManifest(
      path, lists.input.verify ? data::ManifestCheck::kHashes : data::ManifestCheck::kSamples));
  const data::Manifest manifest = TRY(data::ReadManifest(path));
  TRY(lists.dtype.Take(std::string(Name(manifest.dtype)), path));
  TRY(lists.vocab_size.Take(manifest.vocab_size, path));
  TRY(lists.eos.Take(manifest.eos_id, path));
  for (const data::ManifestFile& file : manifest.files)
    TRY(lists.Add(file.part.name, "", path.parent_path(), file.tokens));
  return Status();
}

Status AddIndex(Lists& lists, const Path& path) {
  if (lists.input.paths.size() > 1)
    return InvalidArgumentError("{}: an index stands alone; name no other input beside it", path);
  data::Index index = TRY(data::ReadIndex(path));
  TRY(lists.dtype.Take(std::string(Name(index.dtype)), path));
  for (const data::IndexFile& file : index.files)
    TRY(lists.Add(file.path, file.label, lists.BaseOf(path), file.n_tokens));
  lists.resolved.index = std::move(index);
  return Status();
}

Status AddFolder(Lists& lists, const Path& path) {
  const size_t before = lists.resolved.specs.size();
  for (const std::string& name : TRY(ListDirectory(path))) {
    if (Path(name).extension() == ".npy") TRY(lists.Add(name, path.filename(), path));
  }
  if (lists.resolved.specs.size() == before)
    return NotFoundError("{}: no file in this folder ends in .npy; name the token files", path);
  return Status();
}

Status AddPath(Lists& lists, const std::string& text) {
  const Path path(text);
  if (std::filesystem::is_directory(path)) return AddFolder(lists, path);
  if (text.ends_with(data::kManifestSuffix)) return AddManifest(lists, path);
  if (path.extension() == ".json") return AddIndex(lists, path);
  if (path.extension() == ".txt" || path.extension() == ".mix") return AddMix(lists, path);
  return lists.Add(text, "", "");
}

}  // namespace

CLI::Validator AtLeast(int64_t least) {
  const auto judge = [least](const std::string& text) {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const std::from_chars_result read = std::from_chars(text.data(), end, value);
    if (read.ec == std::errc() && read.ptr == end && value >= least) return std::string();
    return fmt::format("{}: must be a whole number from {} on", text, least);
  };
  return CLI::Validator(judge, fmt::format("{} OR MORE", least));
}

std::vector<std::string> GivenFlags(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0 && option->get_name().starts_with("--"))
      flags.push_back(option->get_name());
  }
  return flags;
}

void AddInputOptions(CLI::App& command, DataInput& input) {
  command
      .add_option("input", input.paths,
                  "Token files, folders of .npy, mix lists (.txt, .mix), manifests "
                  "(.manifest.json) or an index (.json)")
      ->required();
  const data::TokenizerIds ids;
  command
      .add_option("--dtype", input.dtype,
                  "Integers of headerless files: u8, u16, u32 or u64; manifests and indexes say it")
      ->default_str("u32");
  command.add_option("--vocab-size", input.vocab_size, "Ids are below; manifests say it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->default_str(std::to_string(ids.vocab_size));
  command.add_option("--eos", input.eos, "Id that ends a document; manifests say it")
      ->default_str(std::to_string(ids.eos));
  command.add_option("--pad", input.pad, "Id of padding; the EOS if the vocabulary ends before it")
      ->default_str(std::to_string(ids.pad));
  command.add_option("--bos", input.bos, "Id that begins a document, -1 for none")
      ->default_str(std::to_string(ids.bos));
  command.add_option("--base", input.base, "Folder of relative paths in lists (the list's own)");
  command.add_option("--remap", input.remaps, "FROM=TO: paths that begin with FROM begin with TO");
  command.add_option("--mix-tokenizer", input.mix_tokenizer, "What {TOKENIZER} in mix lists means")
      ->capture_default_str();
  command.add_flag("--verify", input.verify, "Read all files of a manifest and compare SHA-256");
}

namespace {

Status CheckDType(const std::optional<std::string>& text) {
  if (!text || IsInt(TRY(ParseDType(*text)))) return Status();
  return InvalidArgumentError("--dtype {}: tokens are integers; use u8, u16, u32 or u64", *text);
}

Status CheckVerifies(const DataInput& input) {
  const auto is_manifest = [](const auto& path) { return path.ends_with(data::kManifestSuffix); };
  if (!input.verify || std::ranges::any_of(input.paths, is_manifest)) return Status();
  return InvalidArgumentError(
      "--verify: no input is a manifest to compare files with; name the {} of the files, or leave "
      "--verify out",
      data::kManifestSuffix);
}

Result<data::TokenizerIds> IdsOf(const Lists& lists) {
  data::TokenizerIds ids;
  ids.vocab_size = lists.vocab_size.value_or(ids.vocab_size);
  ids.eos = lists.eos.value_or(ids.eos);
  TRY(lists.eos.CheckBelow(ids.vocab_size, ids.eos, 0));
  if (ids.pad >= ids.vocab_size) ids.pad = ids.eos;
  const Property<int64_t> pad("--pad", lists.input.pad);
  ids.pad = pad.value_or(ids.pad);
  TRY(pad.CheckBelow(ids.vocab_size, ids.pad, 0));
  const Property<int64_t> bos("--bos", lists.input.bos);
  ids.bos = bos.value_or(ids.bos);
  TRY(bos.CheckBelow(ids.vocab_size, ids.bos, -1));
  return ids;
}

}  // namespace

Result<ResolvedInput> ResolveInput(const DataInput& input) {
  TRY(CheckDType(input.dtype));
  ResolvedInput resolved;
  Lists lists{.input = input, .resolved = resolved};
  for (const std::string& remap : input.remaps)
    lists.remaps.push_back(TRY(data::ParsePathRemap(remap)));
  for (const std::string& path : input.paths) TRY(AddPath(lists, path));
  TRY(CheckVerifies(input));
  resolved.ids = TRY(IdsOf(lists));
  resolved.options.vocab_size = resolved.ids.vocab_size;
  resolved.options.dtype = TRY(ParseDType(lists.dtype.value_or("u32")));
  return resolved;
}

Result<int64_t> SequenceLengthOf(const std::optional<int64_t>& flag, const ResolvedInput& input,
                                 int64_t otherwise) {
  if (!input.index) return flag.value_or(otherwise);
  if (flag && *flag != input.index->sequence_length) {
    return InvalidArgumentError(
        "--sequence-length {}: the index says {}; leave it out, or make an index of that length "
        "(`ulmus data index`)",
        *flag, input.index->sequence_length);
  }
  return input.index->sequence_length;
}

Result<OpenedInput> OpenInput(const DataInput& input) {
  OpenedInput opened{.resolved = TRY(ResolveInput(input)), .files = nullptr};
  for (const data::TokenFileSpec& spec : opened.resolved.specs) {
    if (!TRY(PathExists(spec.path))) continue;         // all that are missing are named at once
    if (!std::filesystem::is_regular_file(spec.path))  // a pipe would wait for its writer
      return InvalidArgumentError("{}: not a regular file; tokens are read at any place",
                                  spec.path);
    TRY(data::CheckTokens(spec.path, opened.resolved.options.dtype, opened.resolved.ids));
  }
  opened.files =
      TRY(data::TokenFiles::Open(std::move(opened.resolved.specs), opened.resolved.options));
  return opened;
}

}  // namespace ulmus::apps
