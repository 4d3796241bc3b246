// `ulmus parity`: does a checkpoint, computed here, give the logits of a reference?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/commands.h"
#include "apps/model_options.h"
#include "base/log.h"
#include "base/random.h"
#include "checkpoint/safetensors_file.h"
#include "infer/parity_reference.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;
using infer::TokenBatch;

// Without a file: enough positions for percentages, few enough for a laptop.
constexpr int64_t kDefaultSequences = 2, kDefaultLength = 256;
// Intermediate tensors that explain a difference are looked for in the first part of a sequence.
constexpr int64_t kMaxTracedLength = 256;

struct Options {
  ModelOptions model;
  std::string against, against_dtype = "f32", tokens;
  std::vector<std::string> ids;
  std::optional<int64_t> length, sequences;
  infer::ParityLimits limits;
  std::optional<double> intermediate_limit;
  bool intermediates = false, json = false;
};

// ---- which tokens ----

// A pure function of the vocabulary and the place.
TokenBatch RandomTokens(int64_t vocab_size, int64_t sequences, int64_t length) {
  TokenBatch batch{.length = length, .sequences = {}};
  for (int64_t b = 0; b < sequences; ++b) {
    const RandomStream stream(0, static_cast<uint64_t>(b), "parity", "tokens");
    auto& sequence = batch.sequences.emplace_back();
    for (int64_t t = 0; t < length; ++t)
      sequence.push_back(static_cast<int32_t>(stream.Word(static_cast<uint64_t>(t)) %
                                              static_cast<uint64_t>(vocab_size)));
  }
  return batch;
}

// Headerless little-endian uint32, as OLMo stores them.
Result<TokenBatch> TokensOfRawFile(const Path& path, int64_t sequences, int64_t length) {
  const MappedFile file = TRY(MappedFile::Open(path));
  constexpr int64_t kWidth = sizeof(uint32_t);
  if (file.size_bytes() % kWidth != 0)
    return InvalidArgumentError("{}: {} bytes are not a whole number of uint32 tokens",
                                path.string(), file.size_bytes());
  if (file.size_bytes() / kWidth / length < sequences) {
    return InvalidArgumentError(
        "{}: {} tokens, but {} sequences of {} were asked for; lower --sequences or --length",
        path.string(), file.size_bytes() / kWidth, sequences, length);
  }
  TokenBatch batch{.length = length, .sequences = {}};
  for (int64_t i = 0; i < sequences * length; ++i) {
    uint32_t id = 0;
    std::memcpy(&id, file.bytes().data() + i * kWidth, kWidth);
    if (i % length == 0) batch.sequences.emplace_back();
    batch.sequences.back().push_back(static_cast<int32_t>(std::min<uint32_t>(id, INT32_MAX)));
  }
  return batch;
}

Result<TokenBatch> TokensOfIds(const std::vector<std::string>& texts) {
  TokenBatch batch;
  for (const std::string& text : texts) {
    batch.sequences.push_back(TRY(ParseIds(text)));
    const auto length = static_cast<int64_t>(batch.sequences.back().size());
    if (length == 0) return InvalidArgumentError("--ids: no ids in '{}'", text);
    if (batch.length != 0 && batch.length != length)
      return InvalidArgumentError("--ids: sequences of {} and {} tokens; all must have one length",
                                  batch.length, length);
    batch.length = length;
  }
  return batch;
}

// The beginning of what is stored, if less than all was asked for. A model that reads backwards
// only gives the beginning the same logits.
Result<TokenBatch> Cut(TokenBatch batch, const Options& options, std::string_view where) {
  const auto sequences = static_cast<int64_t>(batch.sequences.size());
  if (options.length.value_or(0) > batch.length || options.sequences.value_or(0) > sequences) {
    return InvalidArgumentError(
        "--length {} and --sequences {}: {} has {} of {} tokens; ask for no more, or leave them "
        "out",
        options.length.value_or(batch.length), options.sequences.value_or(sequences), where,
        sequences, batch.length);
  }
  batch.length = options.length.value_or(batch.length);
  batch.sequences.resize(static_cast<size_t>(options.sequences.value_or(sequences)));
  for (auto& sequence : batch.sequences) sequence.resize(static_cast<size_t>(batch.length));
  return batch;
}

Result<TokenBatch> ChooseTokens(const Options& options, const nn::olmo3::Config& config) {
  if (!options.ids.empty()) return Cut(TRY(TokensOfIds(options.ids)), options, "--ids");
  const Path path = options.tokens;
  if (path.extension() == ".safetensors") {
    const auto source = TRY(checkpoint::SafetensorsSource::Open(path));
    return Cut(TRY(infer::ReadTokens(*source, path)), options, options.tokens);
  }
  const int64_t context = config.max_position_embeddings;
  const int64_t length = options.length.value_or(std::min(kDefaultLength, context));
  if (length > context) {
    return InvalidArgumentError(
        "--length {}: the model's context is {} (max_position_embeddings); ask for at most that",
        length, context);
  }
  const int64_t sequences = options.sequences.value_or(kDefaultSequences);
  if (options.tokens.empty()) return RandomTokens(config.vocab_size, sequences, length);
  return TokensOfRawFile(path, sequences, length);
}

// ---- comparing ----

struct Comparison {
  infer::ParityReport report;
  int64_t num_sequences = 0;
  std::string reference;  // for the report
};

// Everything that stays the same while parts are compared.
struct Session {
  const Options& options;
  DType dtype;
  double intermediate_limit;
  infer::Checkpoint checkpoint;
  std::unique_ptr<pjrt::Client> client;
  pjrt::CompilationCache cache;

  Result<std::unique_ptr<infer::SequenceModel>> Model(const infer::Checkpoint& which, DType as,
                                                      int64_t length, bool intermediates) {
    return infer::SequenceModel::Create(
        *client, which, {.length = length, .dtype = as, .intermediates = intermediates}, &cache);
  }
};

Result<Comparison> AgainstFile(Session& s, const Path& path) {
  if (!s.options.ids.empty() || !s.options.tokens.empty())
    return InvalidArgumentError("{} has its own tokens: leave out --ids and --tokens",
                                path.string());
  auto file = TRY(infer::ParityFile::Open(path, s.checkpoint.config));
  const TokenBatch tokens = TRY(Cut(file->tokens(), s.options, path.string()));
  const auto ours =
      TRY(s.Model(s.checkpoint, s.dtype, tokens.length, !file->Intermediates().empty()));
  auto report = TRY(infer::CompareModels(*ours, *file, tokens, s.intermediate_limit));
  return Comparison{std::move(report), static_cast<int64_t>(tokens.sequences.size()),
                    path.string()};
}

// Which tensor differs first, in the sequence and up to the place where KL is largest.
Result<std::vector<infer::TensorParity>> Trace(Session& s, const infer::Checkpoint& other,
                                               DType other_dtype, const TokenBatch& tokens,
                                               const infer::TokenPlace& place) {
  TokenBatch part{.length = std::min(tokens.length, kMaxTracedLength), .sequences = {}};
  const auto& sequence = tokens.sequences[static_cast<size_t>(place.sequence)];
  const int64_t first =
      std::clamp<int64_t>(place.position + 1 - part.length, 0, tokens.length - part.length);
  // The window may leave out what came before: both sides see the same tokens.
  part.sequences.emplace_back(sequence.begin() + first, sequence.begin() + first + part.length);
  const auto ours = TRY(s.Model(s.checkpoint, s.dtype, part.length, true));
  const auto theirs = TRY(s.Model(other, other_dtype, part.length, true));
  infer::ModelReference reference(*theirs, other.config);
  return TRY(infer::CompareModels(*ours, reference, part, s.intermediate_limit)).tensors;
}

Result<Comparison> AgainstCheckpoint(Session& s, const Path& path) {
  const DType other_dtype = TRY(ComputeDType(s.options.against_dtype));
  const infer::Checkpoint other = TRY(infer::OpenCheckpoint(path));
  const TokenBatch tokens = TRY(ChooseTokens(s.options, s.checkpoint.config));
  Comparison result{{},
                    static_cast<int64_t>(tokens.sequences.size()),
                    fmt::format("{} ({})", path.string(), Name(other_dtype))};
  {
    const auto ours = TRY(s.Model(s.checkpoint, s.dtype, tokens.length, false));
    const auto theirs = TRY(s.Model(other, other_dtype, tokens.length, false));
    infer::ModelReference reference(*theirs, other.config);
    result.report = TRY(infer::CompareModels(*ours, reference, tokens, s.intermediate_limit));
  }
  const bool same_shape = other.config.num_layers == s.checkpoint.config.num_layers &&
                          other.config.hidden_size == s.checkpoint.config.hidden_size &&
                          other.config.num_heads == s.checkpoint.config.num_heads &&
                          other.config.num_kv_heads == s.checkpoint.config.num_kv_heads &&
                          other.config.head_dim == s.checkpoint.config.head_dim;
  const bool broken = !infer::BrokenLimits(result.report.stats, s.options.limits).empty();
  if (same_shape && (broken || s.options.intermediates)) {
    result.report.tensors =
        TRY(Trace(s, other, other_dtype, tokens, result.report.stats.WorstPlace()));
  }
  return result;
}

// ---- reporting ----

struct Verdict {
  std::vector<std::string> broken;
  const infer::TensorParity* divergent = nullptr;
  bool holds() const { return broken.empty(); }
};

std::string At(const infer::TokenPlace& place) {
  return fmt::format("sequence {}, position {}", place.sequence, place.position);
}

std::string Describe(const infer::TensorParity& tensor) {
  std::string text = fmt::format("{} (relative rms {:.3g}, max abs {:.3g}", tensor.name,
                                 tensor.relative_rms, tensor.max_abs_diff);
  if (tensor.first_place) text += ", first at " + At(*tensor.first_place);
  return text + ")";
}

Verdict Judge(const Comparison& comparison, const infer::ParityLimits& limits, double limit) {
  Verdict verdict{infer::BrokenLimits(comparison.report.stats, limits),
                  infer::FirstDivergent(comparison.report.tensors, limit)};
  if (verdict.divergent != nullptr)
    verdict.broken.push_back(
        fmt::format("first divergent tensor: {}, relative rms at most {:.3g} is allowed",
                    Describe(*verdict.divergent), limit));
  return verdict;
}

// JSON has neither infinity nor NaN.
Json Number(double x) { return std::isfinite(x) ? Json(x) : Json(fmt::format("{}", x)); }

Json PlaceJson(const infer::TokenPlace& place) {
  return {{"sequence", place.sequence}, {"position", place.position}};
}

Json LimitsJson(const infer::ParityLimits& limits) {
  Json json = Json::object();
  if (limits.kl_mean) json["kl_mean"] = *limits.kl_mean;
  if (limits.kl_max) json["kl_max"] = *limits.kl_max;
  if (limits.top1_agreement) json["top1_agreement"] = *limits.top1_agreement;
  if (limits.max_abs_diff) json["max_abs_diff"] = *limits.max_abs_diff;
  return json;
}

Json ReportJson(const Session& s, const Comparison& comparison, const Verdict& verdict) {
  const infer::ParityStats& stats = comparison.report.stats;
  Json tensors = Json::array();
  for (const infer::TensorParity& tensor : comparison.report.tensors) {
    Json row = {{"name", tensor.name},
                {"relative_rms", Number(tensor.relative_rms)},
                {"max_abs_diff", Number(tensor.max_abs_diff)}};
    if (tensor.first_place) row["first"] = PlaceJson(*tensor.first_place);
    tensors.push_back(std::move(row));
  }
  Json json = {
      {"positions", stats.positions},
      {"kl_mean", Number(stats.kl_mean)},
      {"kl_max", Number(stats.kl_max)},
      {"top1_agreement", stats.top1_agreement},
      {"max_abs_diff", Number(stats.max_abs_diff)},
      {"holds", verdict.holds()},
      {"reference", comparison.reference},
      {"dtype", Name(s.dtype)},
      {"sequences", comparison.num_sequences},
      {"kl_max_at", PlaceJson(stats.kl_max_at)},
      {"max_abs_diff_at", PlaceJson(stats.max_abs_diff_at)},
      {"nonfinite", stats.nonfinite},
      {"limits", LimitsJson(s.options.limits)},
      {"broken", verdict.broken},
      {"first_divergent", verdict.divergent != nullptr ? Json(verdict.divergent->name) : Json()},
      {"intermediates", std::move(tensors)}};
  if (stats.first_nonfinite) json["first_nonfinite"] = PlaceJson(*stats.first_nonfinite);
  if (stats.first_disagreement) {
    json["first_disagreement"] = PlaceJson(*stats.first_disagreement);
    json["first_disagreement"]["margin"] = stats.first_disagreement_margin;
  }
  return json;
}

void Print(const Session& s, const Comparison& comparison, const Verdict& verdict) {
  const infer::ParityStats& stats = comparison.report.stats;
  fmt::print("{} ({}) against {}\n", s.options.model.checkpoint, Name(s.dtype),
             comparison.reference);
  fmt::print("  positions        {} in {} sequence{}\n", stats.positions, comparison.num_sequences,
             comparison.num_sequences == 1 ? "" : "s");
  if (stats.first_nonfinite)
    fmt::print("  not finite       {} positions, first at {}; the figures are of the others\n",
               stats.nonfinite, At(*stats.first_nonfinite));
  if (stats.nonfinite == stats.positions) {
    fmt::print("  KL               n/a\n  logits           n/a\n");
  } else {
    fmt::print("  KL               mean {:.3g}, max {:.3g} nats ({})\n", stats.kl_mean,
               stats.kl_max, At(stats.kl_max_at));
    fmt::print("  logits           differ by at most {:.3g} ({})\n", stats.max_abs_diff,
               At(stats.max_abs_diff_at));
  }
  fmt::print("  top-1 agreement  {:.6g} %\n", 100 * stats.top1_agreement);
  if (!comparison.report.tensors.empty())
    fmt::print("  {:<32} {:>12} {:>12}\n", "intermediate tensor", "relative rms", "max abs");
  for (const infer::TensorParity& tensor : comparison.report.tensors)
    fmt::print("  {:<32} {:>12.3g} {:>12.3g}{}\n", tensor.name, tensor.relative_rms,
               tensor.max_abs_diff, &tensor == verdict.divergent ? "  <- first divergent" : "");
  for (const std::string& sentence : verdict.broken) fmt::print("  does not hold: {}\n", sentence);
  if (verdict.holds()) fmt::print("  holds\n");
}

// Limits given on the command line replace those of the dtype.
infer::ParityLimits MergedLimits(const infer::ParityLimits& given, DType dtype) {
  infer::ParityLimits limits = infer::DefaultParityLimits(dtype);
  if (given.kl_mean) limits.kl_mean = given.kl_mean;
  if (given.kl_max) limits.kl_max = given.kl_max;
  if (given.top1_agreement) limits.top1_agreement = given.top1_agreement;
  if (given.max_abs_diff) limits.max_abs_diff = given.max_abs_diff;
  return limits;
}

// The coarser of the two dtypes decides what can be asked for.
Result<DType> JudgedDType(const Options& options, DType dtype, bool against_file) {
  if (against_file) return dtype;
  const DType other = TRY(ComputeDType(options.against_dtype));
  return other == DType::kBF16 ? other : dtype;
}

Result<bool> RunParity(Options options) {
  const DType dtype = TRY(ComputeDType(options.model.dtype));
  const Path against = options.against;
  if (!TRY(PathExists(against)))
    return NotFoundError("{}: no such file or directory", against.string());
  std::error_code ignored;
  const bool is_file = std::filesystem::is_regular_file(against, ignored);
  const DType judged = TRY(JudgedDType(options, dtype, is_file));
  options.limits = MergedLimits(options.limits, judged);
  Session s{options,
            dtype,
            options.intermediate_limit.value_or(infer::DefaultIntermediateLimit(judged)),
            TRY(infer::OpenCheckpoint(options.model.checkpoint)),
            TRY(MakeClient(options.model.plugin, {})),
            pjrt::CompilationCache()};
  const Comparison comparison =
      TRY(is_file ? AgainstFile(s, against) : AgainstCheckpoint(s, against));
  const Verdict verdict = Judge(comparison, options.limits, s.intermediate_limit);
  if (options.json) {
    fmt::print(
        "{}\n",
        ReportJson(s, comparison, verdict).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    Print(s, comparison, verdict);
  }
  return verdict.holds();
}

}  // namespace

void AddParity(CLI::App& app, Run& run) {
  CLI::App* command =
      app.add_subcommand("parity", "Compare a checkpoint's logits with those of a reference");
  const auto options = std::make_shared<Options>();
  AddModelOptions(*command, options->model);
  command
      ->add_option(
          "--against", options->against,
          "A parity file (safetensors with tokens and logits), or a second checkpoint; the "
          "same one for another dtype")
      ->required();
  command
      ->add_option("--against-dtype", options->against_dtype, "f32 or bf16, of a second checkpoint")
      ->capture_default_str();
  command->add_option("--tokens", options->tokens,
                      "Tokens for a second checkpoint: headerless uint32, or safetensors with "
                      "`tokens`; default: random ones");
  command->add_option("--ids", options->ids, "The same as \"1 2 3\"; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--length", options->length,
                   "Tokens per sequence; default: all that are stored, 256 otherwise")
      ->check(WholeNumber(1));
  command
      ->add_option("--sequences", options->sequences,
                   "How many; default: all that are stored, or 2")
      ->check(WholeNumber(1));
  const auto add_limit = [&](const char* name, std::optional<double>& limit, const char* help,
                             double largest = std::numeric_limits<double>::max()) {
    command->add_option(name, limit, help)->check(NumberUpTo(largest));
  };
  add_limit("--kl-mean", options->limits.kl_mean,
            "Largest mean KL(reference || ours), nats; bf16: 1.5e-3");
  add_limit("--kl-max", options->limits.kl_max, "Largest KL at a position; f32: 1e-6");
  add_limit("--top1", options->limits.top1_agreement,
            "Smallest share of positions with the same top-1; f32: 1, bf16: 0.995", 1);
  add_limit("--max-abs-diff", options->limits.max_abs_diff,
            "Largest difference of a logit; default: not judged");
  add_limit("--intermediate-limit", options->intermediate_limit,
            "Largest relative rms difference of an intermediate tensor; f32: 1e-4, bf16: 5e-2");
  command->add_flag("--intermediates", options->intermediates,
                    "Compare intermediate tensors of two checkpoints even if the logits agree");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example: ulmus parity models/olmo3 --against logits.safetensors --dtype bf16\n"
      "Exit code 4 if a limit does not hold. docs/formats/parity_file.md describes the file and "
      "how "
      "to write one.");
  command->callback([options, &run] {
    run = [options]() -> int {
      const Result<bool> holds = RunParity(*options);
      if (!holds.ok()) return Fail(holds.status());
      return *holds ? kExitOk : kExitNotHolding;
    };
  });
}

}  // namespace ulmus::apps
