// `ulmus generate`: continues prompts with a model.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/model_options.h"
#include "base/json.h"
#include "base/log.h"
#include "infer/generate.h"
#include "infer/stop_filter.h"
#include "nn/olmo3/sharding.h"
#include "tokenizer/tokenizer.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxChunk = 256, kLengthStep = 64, kDefaultBatch = 8, kMaxBatch = 4096;
constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Options {
  ModelOptions model;
  std::string mesh, tokenizer, prompt_file;
  std::vector<std::string> prompts, ids, stops;
  infer::SamplingOptions sampling;
  int64_t max_new_tokens = 64;
  std::optional<int64_t> batch_size;
  bool special = false, ignore_eos = false, json = false;
};

struct Prompt {
  std::string text;  // empty for raw ids
  std::vector<int32_t> ids;
};

// One prompt per line; of a .jsonl file the string `prompt` of each line.
Result<std::vector<std::string>> ReadPrompts(const Path& path) {
  const std::string text = TRY(ReadFile(path));
  std::vector<std::string> prompts;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.pop_back();
    if (path.extension() == ".jsonl") {
      const Result<ulmus::Json> json = ParseJson(line);
      if (!json.ok() || !json->is_object() || !json->contains("prompt") ||
          !(*json)["prompt"].is_string())
        return InvalidArgumentError("{}, line {}: {}, expected {{\"prompt\": \"...\"}}", path,
                                    number,
                                    json.ok() ? JsonExcerpt(*json) : json.error().message());
      line = (*json)["prompt"].get<std::string>();
    }
    prompts.push_back(std::move(line));
  }
  if (prompts.empty()) return InvalidArgumentError("{}: no prompt in it", path.string());
  return prompts;
}

// That of the flag, else the checkpoint's own, else none.
Result<std::optional<tokenizer::Tokenizer>> LoadTokenizer(const Options& options,
                                                          const infer::Checkpoint& checkpoint) {
  using Optional = std::optional<tokenizer::Tokenizer>;
  if (!options.tokenizer.empty())
    return Optional(TRY(tokenizer::Tokenizer::Load(options.tokenizer)));
  const auto json = checkpoint.source->LoadSideFile("tokenizer.json");
  if (!json.ok() && json.error().code() == StatusCode::kNotFound) return Optional();
  if (!json.ok()) return json.status();
  return Optional(
      TRY(tokenizer::Tokenizer::FromJson(*json, (checkpoint.folder / "tokenizer.json").string())));
}

Status CheckPrompt(size_t index, const Prompt& prompt, const nn::olmo3::Config& config) {
  if (prompt.ids.empty()) {
    return InvalidArgumentError(
        "prompt {} is empty; there is nothing to continue: give some text, or the end-of-text "
        "token "
        "with --ids to start a new one",
        index);
  }
  for (const int32_t id : prompt.ids) {
    if (id >= config.vocab_size)
      return InvalidArgumentError("prompt {}: token id {} is outside the vocabulary, 0 to {}",
                                  index, id, config.vocab_size - 1);
  }
  const auto length = static_cast<int64_t>(prompt.ids.size());
  if (length >= config.max_position_embeddings) {
    return InvalidArgumentError(
        "prompt {} has {} tokens, but the model's context is {} (max_position_embeddings): shorten "
        "it to at most {}",
        index, length, config.max_position_embeddings, config.max_position_embeddings - 1);
  }
  return {};
}

Result<std::vector<Prompt>> CollectPrompts(const Options& options,
                                           const std::optional<tokenizer::Tokenizer>& tokenizer,
                                           const nn::olmo3::Config& config) {
  std::vector<std::string> texts = options.prompts;
  if (!options.prompt_file.empty()) {
    for (std::string& line : TRY(ReadPrompts(options.prompt_file)))
      texts.push_back(std::move(line));
  }
  if (texts.empty() && options.ids.empty())
    return InvalidArgumentError("no prompt; give --prompt, --prompt-file or --ids");
  if (!tokenizer && (!texts.empty() || !options.stops.empty())) {
    return InvalidArgumentError(
        "{}: no tokenizer.json beside the weights; give --tokenizer FILE, or raw ids with --ids",
        options.model.checkpoint);
  }
  std::vector<Prompt> prompts;
  for (std::string& text : texts) {
    std::vector<int32_t> ids = TRY(tokenizer->Encode(text, {.special = options.special}));
    prompts.push_back({std::move(text), std::move(ids)});
  }
  for (const std::string& ids : options.ids) prompts.push_back({"", TRY(ParseIds(ids))});
  for (size_t i = 0; i < prompts.size(); ++i) TRY(CheckPrompt(i, prompts[i], config));
  return prompts;
}

// The text of one continuation as its tokens arrive.
class Text {
 public:
  Text(const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : stream_(tokenizer), filter_(stops) {}
  // What this token lets be shown.
  Result<std::string> Add(int32_t id) {
    const Result<std::string> piece = stream_.Add(id);
    // A model may have more rows than its tokenizer has tokens.
    if (!piece.ok() && piece.error().code() != StatusCode::kOutOfRange) return piece.status();
    return Show(filter_.Add(piece.ok() ? *piece : kReplacement));
  }
  std::string Finish() { return Show(filter_.Add(stream_.Finish()) + filter_.Finish()); }
  bool stopped() const { return filter_.stopped(); }
  const std::string& text() const { return text_; }

 private:
  std::string Show(std::string shown) {
    text_ += shown;
    return shown;
  }
  tokenizer::DecodeStream stream_;
  infer::StopFilter filter_;
  std::string text_;
};

struct Output {
  infer::Continuation continuation;
  std::string text;
};

int64_t RoundUp(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

// Sizes of the programs: a power of two per chunk and steps of the length, so that prompts of
// similar length share compiled programs.
infer::DecoderOptions DecoderSizes(const Options& options, const std::vector<Prompt>& prompts,
                                   const nn::olmo3::Config& config, int64_t max_new_tokens) {
  const auto num = static_cast<int64_t>(prompts.size());
  int64_t longest = 0;
  for (const Prompt& p : prompts) longest = std::max(longest, static_cast<int64_t>(p.ids.size()));
  infer::DecoderOptions sizes;
  sizes.batch = std::min(num, options.batch_size.value_or(kDefaultBatch));
  sizes.chunk = 1;
  while (sizes.chunk < std::min(longest, kMaxChunk)) sizes.chunk *= 2;
  sizes.max_length =
      RoundUp(std::min(longest + max_new_tokens, config.max_position_embeddings), kLengthStep);
  return sizes;
}

// Everything that is made once, and the prompts.
struct Session {
  const Options& options;
  infer::Checkpoint checkpoint;
  std::optional<tokenizer::Tokenizer> tokenizer;
  std::vector<Prompt> prompts;
  std::unique_ptr<pjrt::Client> client;
  std::vector<pjrt::ShardedArray> weights;
  std::unique_ptr<infer::Decoder> decoder;
  int64_t max_new_tokens = 0;
};

// Not beyond the context of the model.
int64_t NewTokens(const Options& options, const std::vector<Prompt>& prompts,
                  const nn::olmo3::Config& config) {
  int64_t longest = 0;
  for (const Prompt& p : prompts) longest = std::max(longest, static_cast<int64_t>(p.ids.size()));
  const int64_t room = config.max_position_embeddings - longest;
  if (options.max_new_tokens <= room) return options.max_new_tokens;
  LogWarning("{} new tokens after a prompt of {} would leave the model's context of {}: {} instead",
             options.max_new_tokens, longest, config.max_position_embeddings, room);
  return room;
}

Status CheckOptions(const Options& options) {
  TRY(infer::ValidateSampling(options.sampling));
  if (std::ranges::find(options.stops, "") != options.stops.end())
    return InvalidArgumentError(
        "--stop is empty, which would end every text at once; leave it out");
  return {};
}

Status Prepare(Session& s) {
  const Options& options = s.options;
  TRY(CheckOptions(options));
  const DType dtype = TRY(ComputeDType(options.model.dtype));
  const Mesh mesh = TRY(ParseMesh(options.mesh));
  s.checkpoint = TRY(infer::OpenCheckpoint(options.model.checkpoint));
  const nn::olmo3::Config& config = s.checkpoint.config;
  s.tokenizer = TRY(LoadTokenizer(options, s.checkpoint));
  s.prompts = TRY(CollectPrompts(options, s.tokenizer, config));
  s.max_new_tokens = NewTokens(options, s.prompts, config);
  infer::DecoderOptions sizes = DecoderSizes(options, s.prompts, config, s.max_new_tokens);
  sizes.dtype = dtype;
  sizes.mesh = mesh;
  // One row and one token: neither is cut where it does not divide.
  AxisRules rules = nn::olmo3::DefaultRules(config, mesh);
  rules["batch"] = {};
  TRY(nn::olmo3::ValidateMesh(config, mesh, rules, 1, 1).WithContext("--mesh"));
  s.client = TRY(MakeClient(options.model.plugin, mesh));
  s.weights = TRY(infer::LoadWeights(*s.client, s.checkpoint,
                                     infer::UnstackedTargets(config, dtype, mesh), mesh));
  pjrt::CompilationCache cache;
  s.decoder = TRY(infer::Decoder::Create(*s.client, config, s.weights, sizes, &cache));
  return {};
}

// Prints as it goes if there is one prompt and somebody watches.
Result<std::vector<Output>> RunBatch(Session& s, size_t first, size_t count, bool streaming,
                                     infer::GenerateTimes& times) {
  std::vector<Text> texts;
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = first; i < first + count; ++i) {
    if (s.tokenizer) texts.emplace_back(*s.tokenizer, s.options.stops);
    ids.push_back(s.prompts[i].ids);
  }
  const auto show = [&](const std::string& piece) {
    if (!streaming || piece.empty()) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  };
  const auto on_token = [&](int64_t row, int32_t id) -> Result<bool> {
    if (!s.tokenizer) {
      show(fmt::format("{} ", id));
      return true;
    }
    Text& text = texts[static_cast<size_t>(row)];
    show(TRY(text.Add(id)));
    return !text.stopped();
  };
  infer::GenerateOptions generate{.sampling = s.options.sampling,
                                  .max_new_tokens = s.max_new_tokens,
                                  .eos_token_ids = {},
                                  .first_sequence = static_cast<int64_t>(first)};
  if (!s.options.ignore_eos) generate.eos_token_ids = s.checkpoint.eos_token_ids;
  auto continuations = TRY(infer::Generate(*s.decoder, ids, generate, on_token, times));
  std::vector<Output> outputs;
  for (size_t i = 0; i < count; ++i) {
    Output output{std::move(continuations[i]), ""};
    if (s.tokenizer) {
      show(texts[i].Finish());
      output.text = texts[i].text();
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

double Rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

Json Report(const Session& s, const std::vector<Output>& outputs,
            const infer::GenerateTimes& times) {
  Json results = Json::array();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Prompt& prompt = s.prompts[i];
    Json result = {{"prompt", prompt.text}, {"prompt_tokens", prompt.ids.size()}};
    if (s.tokenizer) result["text"] = outputs[i].text;
    result["ids"] = outputs[i].continuation.ids;
    result["finish"] = infer::Name(outputs[i].continuation.finish);
    results.push_back(std::move(result));
  }
  return {{"results", std::move(results)},
          {"dtype", s.options.model.dtype},
          {"seed", s.options.sampling.seed},
          {"batch", s.decoder->options().batch},
          {"compile_s", s.decoder->compile_s()},
          {"prefill_tokens", times.prefill_tokens},
          {"prefill_s", times.prefill_s},
          {"prefill_tokens_per_s", Rate(times.prefill_tokens, times.prefill_s)},
          {"decode_tokens", times.decode_tokens},
          {"decode_s", times.decode_s},
          {"decode_tokens_per_s", Rate(times.decode_tokens, times.decode_s)}};
}

void Print(const Session& s, const std::vector<Output>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs.size() > 1) fmt::print("--- prompt {}\n", i);
    if (s.tokenizer) {
      fmt::print("{}{}\n", s.prompts[i].text, outputs[i].text);
    } else {
      fmt::print("{}\n", fmt::join(outputs[i].continuation.ids, " "));
    }
  }
}

Status RunGenerate(const Options& options) {
  Session s{options, {}, {}, {}, nullptr, {}, nullptr};
  TRY(Prepare(s));
  const bool streaming = !options.json && s.prompts.size() == 1 && isatty(STDOUT_FILENO) == 1;
  if (streaming && s.tokenizer) {
    fmt::print("{}", s.prompts[0].text);
    std::fflush(stdout);
  }
  std::vector<Output> outputs;
  infer::GenerateTimes times;
  const auto batch = static_cast<size_t>(s.decoder->options().batch);
  Progress progress("generate", static_cast<int64_t>(s.prompts.size()), {.unit = "prompts"});
  for (size_t first = 0; first < s.prompts.size(); first += batch) {
    const size_t count = std::min(batch, s.prompts.size() - first);
    for (Output& output : TRY(RunBatch(s, first, count, streaming, times)))
      outputs.push_back(std::move(output));
    if (s.prompts.size() > 1) progress.Add(static_cast<int64_t>(count));
  }
  if (options.json) {
    fmt::print("{}\n",
               Report(s, outputs, times).dump(2, ' ', false, Json::error_handler_t::replace));
    return {};
  }
  if (streaming) {
    fmt::print("\n");
  } else {
    Print(s, outputs);
  }
  LogInfo(
      "prompts: {} tokens, {:.1f} tokens/s; generated: {} tokens, {:.1f} tokens/s; compiled in "
      "{:.1f} s",
      times.prefill_tokens, Rate(times.prefill_tokens, times.prefill_s), times.decode_tokens,
      Rate(times.decode_tokens, times.decode_s), s.decoder->compile_s());
  return {};
}

}  // namespace

void AddGenerate(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("generate", "Continue prompts with a model");
  const auto options = std::make_shared<Options>();
  AddModelOptions(*command, options->model);
  command->add_option("--prompt", options->prompts, "Text to continue; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--prompt-file", options->prompt_file,
                      "Prompts, one a line; of a .jsonl file the string \"prompt\" of each line");
  command->add_option("--ids", options->ids, "Prompt as token ids, \"1 2 3\"; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--max-new-tokens", options->max_new_tokens, "Tokens to add at most")
      ->check(WholeNumber(1))
      ->capture_default_str();
  command
      ->add_option("--temperature", options->sampling.temperature,
                   "Divides the logits; 0: always the likeliest token")
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "Only the k likeliest tokens; 0: all")
      ->check(WholeNumber(0))
      ->capture_default_str();
  command
      ->add_option("--top-p", options->sampling.top_p,
                   "Only the fewest tokens whose probabilities reach p")
      ->capture_default_str();
  command->add_option("--seed", options->sampling.seed, "Of the draws")
      ->check(WholeNumber(0, UINT64_MAX))
      ->capture_default_str();
  command->add_option("--stop", options->stops, "End the text before this string; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end-of-text token");
  command->add_flag("--special", options->special,
                    "Read special tokens such as <|endoftext|> in prompts as such");
  command->add_option("--tokenizer", options->tokenizer,
                      "tokenizer.json; default: the one beside the weights");
  command
      ->add_option("--batch-size", options->batch_size,
                   "Prompts at a time; default: all, at most 8")
      ->check(WholeNumber(1, kMaxBatch));
  command->add_option("--mesh", options->mesh, "Devices, \"fsdp=2,tensor=4\"; default: one");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example: ulmus generate runs/demo --prompt 'In the beginning' --temperature 0.8 --top-p "
      "0.95 "
      "--seed 1\n"
      "The same seed gives the same text, whatever else is in the batch.");
  command->callback([options, &run] {
    run = [options] {
      const Status status = RunGenerate(*options);
      return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
    };
  });
}

}  // namespace ulmus::apps
