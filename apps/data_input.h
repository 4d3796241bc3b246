// What the subcommands of `ulmus data` read: token files, folders of them, mix lists, indexes and
// manifests, told apart by their names.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/fingerprint.h"
#include "data/index.h"
#include "data/mix_list.h"
#include "data/token_files.h"

namespace ulmus::apps {

struct DataInput {
  std::vector<std::string> paths;
  // Not given: what manifests and indexes say, else 32 bits and OLMo's tokenizer.
  std::optional<std::string> dtype;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> eos;
  std::optional<int64_t> pad;
  std::optional<int64_t> bos;
  std::string base;  // of relative paths in lists; empty: the list's folder
  std::vector<std::string> remaps;
  std::string mix_tokenizer = std::string(data::kDolmaTokenizer);
  bool verify = false;  // SHA-256 of the files of manifests
};

void AddInputOptions(CLI::App& command, DataInput& input);

// Whole numbers from `least` on; the message is short.
CLI::Validator AtLeast(int64_t least);
// The flags on the command line, "--out".
std::vector<std::string> GivenFlags(const CLI::App& command);

struct ResolvedInput {
  std::vector<data::TokenFileSpec> specs;
  std::vector<std::string> listed;   // as the list names it: what an index should hold
  std::optional<data::Index> index;  // if the input is one
  data::TokenFilesOptions options;
  data::TokenizerIds ids;
};

// kNotFound, kInvalidArgument and kDataLoss name the path. Manifests are checked against their
// files; a flag that contradicts a manifest or an index is refused by its name.
Result<ResolvedInput> ResolveInput(const DataInput& input);

// The flag --sequence-length, or what the index says, which must agree; neither: `otherwise`.
Result<int64_t> SequenceLengthOf(const std::optional<int64_t>& flag, const ResolvedInput& input,
                                 int64_t otherwise);

// ResolveInput, a look at the width of every file, and the files opened.
struct OpenedInput {
  ResolvedInput resolved;
  std::shared_ptr<const data::TokenFiles> files;
};
Result<OpenedInput> OpenInput(const DataInput& input);

}  // namespace ulmus::apps
