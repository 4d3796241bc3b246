// `ulmus tokenize`: documents to token files, their sidecars and a manifest.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/commands.h"
#include "base/log.h"
#include "base/stop_signal.h"
#include "data/tokenize.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string tokenizer;
  std::string out;
  std::vector<std::string> inputs;
  std::string dtype = "u32";
  std::string eos;
  std::string field = "text";
  bool lines = false;
  bool skip_bad = false;
  bool restart = false;
  int64_t shard_tokens = int64_t{1} << 30;
  int64_t max_document_mb = 256;
  int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  double save_interval_s = 10;
  bool json = false;
};

// CLI11's own checks of numbers let NaN through and print the largest double with all its digits.
std::string CheckSeconds(const std::string& text) {
  constexpr double kMaxSeconds = 1e9;
  double seconds = 0;
  const bool number = CLI::detail::lexical_cast(text, seconds);
  if (number && seconds >= 0 && seconds <= kMaxSeconds) return "";
  return fmt::format("{} is no number of seconds from 0 to 1e9", text.substr(0, 40));
}

Result<data::TokenizeOptions> Translate(const Options& options) {
  data::TokenizeOptions out;
  for (const std::string& input : options.inputs) out.inputs.emplace_back(input);
  out.prefix = options.out;
  std::string dtype = options.dtype;  // NumPy's names are known too
  if (dtype.starts_with("uint")) dtype = "u" + dtype.substr(4);
  out.dtype = TRY(ParseDType(dtype));
  out.eos = options.eos;
  out.records = {.field = options.field,
                 .lines = options.lines,
                 .max_document_bytes = options.max_document_mb << 20};
  out.skip_bad = options.skip_bad;
  out.restart = options.restart;
  out.max_shard_tokens = options.shard_tokens;
  out.num_threads = options.threads;
  out.save_interval_s = options.save_interval_s;
  return out;
}

// Bytes of the inputs are the known total; the speed that people ask for is in tokens.
class ProgressLine {
 public:
  void Update(const data::TokenizeProgress& now) {
    if (!progress_) {
      progress_.emplace(
          "tokenize", now.total_bytes,
          ProgressOptions{.unit = "bytes", .draw = [this](std::string_view text) { Draw(text); }});
    }
    tokens_ = now.tokens;
    progress_->Update(now.input_bytes);
  }

 private:
  void Draw(std::string_view text) const {
    const bool ends = text.ends_with('\n');
    if (ends) text.remove_suffix(1);
    const double elapsed_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    fmt::print(stderr, "{}, {} tokens ({:.2f} M/s){}", text, tokens_,
               static_cast<double>(tokens_) / 1e6 / elapsed_s, ends ? "\n" : "");
    std::fflush(stderr);
  }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int64_t tokens_ = 0;
  std::optional<Progress> progress_;
};

Json ReportJson(const data::TokenizeReport& report, const Options& options) {
  const data::Manifest& manifest = report.manifest;
  Json files = Json::array();
  for (const data::ManifestFile& file : manifest.files)
    files.push_back(
        {{"name", file.part.name}, {"tokens", file.tokens}, {"documents", file.documents}});
  return {{"tokens", manifest.tokens},
          {"documents", manifest.documents},
          {"seconds", report.seconds},
          {"tokens_encoded", report.tokens_encoded},
          {"empty_documents", manifest.empty_documents},
          {"bad_records", manifest.bad_records},
          {"complete", report.complete},
          {"already_complete", report.already_complete},
          {"resumed", report.resumed},
          {"dtype", Name(manifest.dtype)},
          {"manifest", options.out + std::string(data::kManifestSuffix)},
          {"files", files}};
}

void Print(const data::TokenizeReport& report, const Options& options) {
  const data::Manifest& manifest = report.manifest;
  if (!report.complete) return;
  if (report.already_complete) fmt::print("already complete: ");
  fmt::print("{} tokens in {} documents, {} file{} of {}\n", manifest.tokens, manifest.documents,
             manifest.files.size(), manifest.files.size() == 1 ? "" : "s", Name(manifest.dtype));
  if (manifest.empty_documents > 0)
    fmt::print("{} empty documents left out\n", manifest.empty_documents);
  if (manifest.bad_records > 0) fmt::print("{} bad records left out\n", manifest.bad_records);
  if (report.seconds > 0)
    fmt::print("{:.1f} s, {:.2f} M tokens/s\n", report.seconds,
               static_cast<double>(report.tokens_encoded) / 1e6 / report.seconds);
  fmt::print("{}{}\n", options.out, data::kManifestSuffix);
}

Result<data::TokenizeReport> Work(const Options& options) {
  const data::TokenizeOptions work = TRY(Translate(options));
  const tokenizer::Tokenizer tokenizer = TRY(tokenizer::Tokenizer::Load(options.tokenizer));
  CatchStopSignals();  // a second one ends the program at once; the saved state stays
  ProgressLine line;
  return data::Tokenize(tokenizer, work, &StopRequested,
                        [&line](const data::TokenizeProgress& now) { line.Update(now); });
}

int RunTokenize(const Options& options) {
  const Result<data::TokenizeReport> report = Work(options);
  if (!report.ok()) return Fail(report.status());
  if (options.json) {
    fmt::print("{}\n",
               ReportJson(*report, options).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    Print(*report, options);
  }
  if (report->complete) return kExitOk;
  fmt::print(stderr, "stopped by {} and saved; the same command goes on from there\n",
             StopSignalName());
  return kExitRequeue;
}

}  // namespace

void AddTokenize(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn documents into token files");
  const auto options = std::make_shared<Options>();
  command->add_option("--tokenizer", options->tokenizer, "A Hugging Face tokenizer.json")
      ->required();
  command
      ->add_option("--out", options->out,
                   "Prefix of the files: PREFIX-00000.npy, PREFIX.manifest.json")
      ->required();
  command
      ->add_option("input", options->inputs,
                   ".jsonl (one document a line), .parquet (one a row) or text files (one a file); "
                   ".gz and .zst are unpacked")
      ->required();
  command->add_option("--dtype", options->dtype, "u16 or u32, little-endian")
      ->capture_default_str();
  command->add_option("--eos", options->eos, "Token that ends each document [<|endoftext|>]");
  command->add_option("--field", options->field, "Field or column with the text")
      ->capture_default_str();
  command->add_flag("--lines", options->lines,
                    "In text files each line is a document, not the file");
  command->add_flag("--skip-bad", options->skip_bad,
                    "Leave out records that cannot be read, and count them");
  command->add_flag("--restart", options->restart,
                    "Delete what an earlier run left under the prefix");
  command->add_option("--shard-tokens", options->shard_tokens, "Most tokens in one file")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 48))
      ->capture_default_str();
  command->add_option("--max-document-mb", options->max_document_mb, "Largest document, in MiB")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads that encode")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--save-interval-s", options->save_interval_s, "Seconds between durable states")
      ->check(CLI::Validator(CheckSeconds, "SECONDS"))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example: ulmus tokenize --tokenizer tokenizer.json --out tokens/wiki wiki/*.jsonl.zst\n"
      "Documents keep their order. Empty ones are left out. Special tokens written out in a text "
      "stay text.\n"
      "Stopped or killed, the same command goes on where it was and gives the same bytes.");
  command->callback([options, &run] { run = [options] { return RunTokenize(*options); }; });
}

}  // namespace ulmus::apps
