#include "apps/data_input.h"

#include <utility>

#include "data/manifest.h"
#include "data/sniff.h"
#include "data/token_file_identity.h"

namespace ulmus::apps {
namespace {

struct Lists {
  const DataInput& input;
  std::vector<data::PathRemap> remaps;
  ResolvedInput& resolved;

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
  lists.resolved.options.dtype = manifest.dtype;
  for (const data::ManifestFile& file : manifest.files)
    TRY(lists.Add(file.part.name, "", path.parent_path(), file.tokens));
  return Status();
}

Status AddIndex(Lists& lists, const Path& path) {
  if (lists.input.paths.size() > 1)
    return InvalidArgumentError("{}: an index stands alone; name no other input beside it", path);
  data::Index index = TRY(data::ReadIndex(path));
  lists.resolved.options.dtype = index.dtype;
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

void AddInputOptions(CLI::App& command, DataInput& input) {
  command
      .add_option("input", input.paths,
                  "Token files, folders of .npy, mix lists (.txt, .mix), manifests "
                  "(.manifest.json) or an index (.json)")
      ->required();
  command.add_option("--dtype", input.dtype, "Integers of headerless files: u8, u16, u32 or u64")
      ->capture_default_str();
  command.add_option("--vocab-size", input.ids.vocab_size, "Ids are below")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  command.add_option("--eos", input.ids.eos, "Id that ends a document")->capture_default_str();
  command.add_option("--pad", input.ids.pad, "Id of padding")->capture_default_str();
  command.add_option("--bos", input.ids.bos, "Id that begins a document, -1 for none")
      ->capture_default_str();
  command.add_option("--base", input.base, "Folder of relative paths in lists (the list's own)");
  command.add_option("--remap", input.remaps, "FROM=TO: paths that begin with FROM begin with TO");
  command.add_option("--mix-tokenizer", input.mix_tokenizer, "What {TOKENIZER} in mix lists means")
      ->capture_default_str();
  command.add_flag("--verify", input.verify, "Read all files of a manifest and compare SHA-256");
}

Result<ResolvedInput> ResolveInput(const DataInput& input) {
  ResolvedInput resolved;
  resolved.options.vocab_size = input.ids.vocab_size;
  resolved.options.dtype = TRY(ParseDType(input.dtype));
  if (!IsInt(resolved.options.dtype))
    return InvalidArgumentError("--dtype {}: tokens are integers; use u8, u16, u32 or u64",
                                input.dtype);
  Lists lists{.input = input, .remaps = {}, .resolved = resolved};
  for (const std::string& remap : input.remaps)
    lists.remaps.push_back(TRY(data::ParsePathRemap(remap)));
  for (const std::string& path : input.paths) TRY(AddPath(lists, path));
  return resolved;
}

Result<OpenedInput> OpenInput(const DataInput& input) {
  OpenedInput opened{.resolved = TRY(ResolveInput(input)), .files = nullptr};
  for (const data::TokenFileSpec& spec : opened.resolved.specs) {
    if (TRY(PathExists(spec.path)))
      TRY(data::CheckTokens(spec.path, opened.resolved.options.dtype, input.ids));
  }
  opened.files = TRY(data::TokenFiles::Open(opened.resolved.specs, opened.resolved.options));
  return opened;
}

}  // namespace ulmus::apps
