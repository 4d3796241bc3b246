// `ulmus data index`: an index JSON of token files, as MaxText's olmo_grain input reads it.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/data_commands.h"
#include "apps/data_input.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  DataInput input;
  int64_t sequence_length = 0;
  std::string tokenizer = std::string(data::kDolmaTokenizer);
  std::string out;
  bool json = false;
};

// As readers in any folder find the file. An address stays as it is.
std::string Everywhere(const std::string& path) {
  if (path.find("://") != std::string::npos) return path;
  const Path whole = std::filesystem::absolute(path);
  const Path plain = whole.lexically_normal();
  std::error_code error;  // `..` after a link leads elsewhere
  return std::filesystem::equivalent(whole, plain, error) ? plain : whole;
}

Result<data::Index> MakeIndex(const Options& options) {
  if (options.out.empty()) return InvalidArgumentError("--out: empty; name a file");
  // It would be replaced, as any file is.
  if (std::filesystem::exists(options.out) && !std::filesystem::is_regular_file(options.out))
    return InvalidArgumentError("--out {}: not a regular file; name a file", options.out);
  const OpenedInput opened = TRY(OpenInput(options.input));
  data::Index index{.sequence_length = options.sequence_length,
                    .dtype = opened.resolved.options.dtype,
                    .tokenizer = options.tokenizer};
  for (int64_t i = 0; i < opened.files->size(); ++i) {
    if (opened.files->num_tokens(i) == 0) {
      return DataLossError(
          "{}: holds no token; fetch or make it again, or leave it out of the index",
          opened.files->spec(i).path);
    }
    index.files.push_back({.path = Everywhere(opened.resolved.listed[static_cast<size_t>(i)]),
                           .label = opened.files->spec(i).label,
                           .n_tokens = opened.files->num_tokens(i)});
  }
  TRY(data::CompleteIndex(index));
  if (index.total_instances == 0) {
    return InvalidArgumentError(
        "--sequence-length {}: no file holds that many tokens, so the index would have no instance",
        options.sequence_length);
  }
  TRY(data::WriteIndex(options.out, index));
  return index;
}

int RunIndex(const Options& options) {
  const Result<data::Index> index = MakeIndex(options);
  if (!index.ok()) return Fail(index.status());
  const int64_t dropped = index->total_tokens - index->total_instances * index->sequence_length;
  if (options.json) {
    const Json report = {{"out", options.out},
                         {"files", index->files.size()},
                         {"tokens", index->total_tokens},
                         {"instances", index->total_instances},
                         {"dropped_tokens", dropped},
                         {"fingerprint", index->fingerprint}};
    fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print(
        "{}: {} files, {} tokens, {} instances of {} ({} tokens after the last full one of their "
        "file)\nfingerprint {}\n",
        options.out, index->files.size(), index->total_tokens, index->total_instances,
        index->sequence_length, dropped, index->fingerprint);
  }
  return kExitOk;
}

}  // namespace

void AddDataIndex(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("index", "Write the index JSON of token files");
  const auto options = std::make_shared<Options>();
  AddInputOptions(*command, options->input);
  command->add_option("--sequence-length", options->sequence_length, "Tokens of an instance")
      ->required()
      ->check(AtLeast(1));
  command->add_option("--tokenizer", options->tokenizer, "Name to write into the index")
      ->capture_default_str();
  command->add_option("--out", options->out, "Where to write it")->required();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example: ulmus data index mix.txt --base /data --sequence-length 8192 --out index.json");
  command->callback([options, &run] { run = [options] { return RunIndex(*options); }; });
}

}  // namespace ulmus::apps
