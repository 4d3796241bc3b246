// `ulmus convert`: weights from one format to another, streamed through a few buffers.
#include <chrono>
#include <memory>

#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/convert_plan.h"
#include "apps/model_options.h"  // WholeNumber
#include "base/log.h"
#include "base/stop_signal.h"  // CatchStopSignals
#include "checkpoint/contained_file.h"
#include "checkpoint/copy_tensors.h"
#include "checkpoint/hf_directory.h"
#include "checkpoint/native.h"
#include "checkpoint/open.h"
#include "checkpoint/run_checkpoints.h"  // StepOf

namespace ulmus::apps {
namespace {

using checkpoint::HfLayout;
using checkpoint::OpenedSource;
using checkpoint::TensorCopy;
using checkpoint::TensorInfo;
using checkpoint::TensorSink;
using checkpoint::WeightFormat;
using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxRows = INT32_MAX;  // of embedding and head: token ids are i32

struct Options {
  std::string source, destination;
  std::string format;  // empty: hf -> ulmus, ulmus -> hf
  std::string dtype;
  std::string config;
  std::string max_shard_size;
  int64_t pad_vocab = 0;
  int64_t vocab_size = 0;
  bool keep_extra = false;
  bool overwrite = false;
  bool json = false;
};

Status StoppedError() {
  return CancelledError("stopped by {}; nothing was written, the same command starts again",
                        StopSignalName());
}

// "bf16" or torch's "bfloat16".
Result<DType> ParseFloatType(std::string_view name) {
  constexpr std::pair<std::string_view, DType> kNames[] = {
      {"bf16", DType::kBF16},   {"f16", DType::kF16},       {"f32", DType::kF32},
      {"f64", DType::kF64},     {"bfloat16", DType::kBF16}, {"float16", DType::kF16},
      {"float32", DType::kF32}, {"float64", DType::kF64}};
  for (const auto& [known, dtype] : kNames)
    if (known == name) return dtype;
  return InvalidArgumentError("--dtype {}: not a float type; known: bf16, f16, f32, f64", name);
}

// "5GB" (10^9 bytes), "3GiB" (2^30), "1000000".
Result<int64_t> ParseSize(std::string_view text) {
  constexpr std::pair<std::string_view, int64_t> kUnits[] = {{"KiB", int64_t{1} << 10},
                                                             {"MiB", int64_t{1} << 20},
                                                             {"GiB", int64_t{1} << 30},
                                                             {"KB", 1'000},
                                                             {"MB", 1'000'000},
                                                             {"GB", 1'000'000'000},
                                                             {"B", 1}};
  std::string_view digits = text;
  int64_t unit = 1;
  for (const auto& [name, bytes] : kUnits) {
    if (text.ends_with(name)) {
      digits = text.substr(0, text.size() - name.size());
      unit = bytes;
      break;
    }
  }
  int64_t value = 0;
  bool ok = !digits.empty();
  for (char c : digits) {
    ok = ok && c >= '0' && c <= '9' && !__builtin_mul_overflow(value, 10, &value) &&
         !__builtin_add_overflow(value, c - '0', &value);
  }
  if (!ok || __builtin_mul_overflow(value, unit, &value) || value <= 0) {
    return InvalidArgumentError(
        "--max-shard-size {}: not a size; write it as 5GB, 3GiB or a number of bytes", text);
  }
  return value;
}

Result<WeightFormat> TargetFormat(const Options& options, const OpenedSource& source) {
  if (options.format == "hf") return WeightFormat::kHf;
  if (options.format == "ulmus") return WeightFormat::kUlmus;
  if (!options.format.empty()) {
    return InvalidArgumentError("--format {}: this version writes hf and ulmus", options.format);
  }
  return source.format == WeightFormat::kUlmus ? WeightFormat::kHf : WeightFormat::kUlmus;
}

// True if `inner` is `outer` or lies below it; links followed as far as they exist.
bool IsAtOrBelow(const Path& inner, const Path& outer) {
  std::error_code error;
  const Path a = std::filesystem::weakly_canonical(inner, error);
  const Path b =
      std::filesystem::weakly_canonical(outer.has_filename() ? outer : outer.parent_path(), error);
  return std::mismatch(b.begin(), b.end(), a.begin(), a.end()).first == b.end();
}

// The last name of a path, also if a slash follows it.
std::string FolderName(const Path& path) {
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Status CheckDestination(const Options& options) {
  const Path destination = options.destination;
  if (destination.empty()) return InvalidArgumentError("DST is empty; name the directory to write");
  if (IsAtOrBelow(options.source, destination)) {
    return InvalidArgumentError("{}: SRC is DST or lies in it; name another DST", destination);
  }
  if (!TRY(PathExists(destination))) return Status();
  if (!options.overwrite) {
    return AlreadyExistsError("{}: exists; choose another name or pass --overwrite", destination);
  }
  if (!checkpoint::IsReplaceable(destination)) {
    return FailedPreconditionError(
        "{}: neither empty nor a directory of weights, so --overwrite does not touch it; remove it "
        "yourself if that is meant",
        destination);
  }
  return Status();
}

Status CheckFreeDisk(const Path& destination, int64_t bytes) {
  // The folder that exists; those below it are made later.
  Path folder = destination.parent_path();
  while (!folder.empty() && !TRY(PathExists(folder))) folder = folder.parent_path();
  const int64_t free_bytes = TRY(FreeDiskBytes(folder.empty() ? Path(".") : folder));
  if (free_bytes >= bytes) return Status();
  return ResourceExhaustedError(
      "{}: {} bytes needed, {} free on its disk; free space or choose "
      "another file system",
      destination, bytes, free_bytes);
}

std::vector<TensorInfo> SortedTargets(std::span<const TensorCopy> copies) {
  std::vector<TensorInfo> targets;
  for (const TensorCopy& copy : copies) targets.push_back(copy.target);
  return targets;
}

// The layout the weights came with, if it holds exactly what is to be written.
bool LayoutFits(const HfLayout& layout, std::span<const TensorCopy> copies) {
  std::vector<TensorInfo> tensors = layout.Tensors();
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  return tensors == SortedTargets(copies);
}

// Copies in the order of the layout's files.
std::vector<TensorCopy> InLayoutOrder(const HfLayout& layout, std::span<const TensorCopy> copies) {
  std::vector<TensorCopy> ordered;
  for (const TensorInfo& tensor : layout.Tensors()) {
    ordered.push_back(*std::ranges::lower_bound(
        copies, tensor.name, {}, [](const TensorCopy& copy) { return copy.target.name; }));
  }
  return ordered;
}

struct Output {
  std::unique_ptr<TensorSink> sink;
  std::vector<TensorCopy> copies;  // in the order of the sink
  int64_t num_files = 0;
  bool kept_layout = false;
};

Result<Output> CreateHfOutput(const Options& options, const OpenedSource& source,
                              const ConvertPlan& plan) {
  Output output;
  HfLayout layout;
  output.kept_layout = options.max_shard_size.empty() && source.layout.has_value() &&
                       LayoutFits(*source.layout, plan.copies);
  if (output.kept_layout) {
    layout = *source.layout;
  } else {
    checkpoint::LayoutOptions layout_options;
    if (!options.max_shard_size.empty())
      layout_options.max_shard_bytes = TRY(ParseSize(options.max_shard_size));
    layout = TRY(checkpoint::PlanHfLayout(SortedTargets(plan.copies), layout_options));
  }
  output.copies = InLayoutOrder(layout, plan.copies);
  output.num_files = static_cast<int64_t>(layout.files.size());
  output.sink = TRY(checkpoint::HfSink::Create(options.destination, std::move(layout),
                                               {.overwrite = options.overwrite}));
  return output;
}

Result<Output> CreateUlmusOutput(const Options& options, const ConvertPlan& plan) {
  if (!options.max_shard_size.empty())
    return InvalidArgumentError("--max-shard-size is for --format hf");
  Output output;
  output.copies = plan.copies;
  output.num_files = static_cast<int64_t>(plan.copies.size());
  checkpoint::NativeWriterOptions writer_options;
  writer_options.overwrite = options.overwrite;
  // A run only reads what has the step of its name.
  writer_options.step = checkpoint::StepOf(FolderName(options.destination)).value_or(0);
  output.sink = TRY(checkpoint::NativeWriter::Create(options.destination,
                                                     SortedTargets(plan.copies), writer_options));
  return output;
}

Status CopySideFiles(const OpenedSource& source, WeightFormat target, const std::string& config,
                     TensorSink& sink) {
  for (const std::string& name : source.tensors->SideFiles()) {
    if (name == "config.json") continue;
    if (name == checkpoint::kLayoutFileName && target == WeightFormat::kHf) continue;
    const std::string bytes = TRY(source.tensors->LoadSideFile(name));
    TRY(sink.AddSideFile(name, bytes));
  }
  return sink.AddSideFile("config.json", config);
}

Result<Json> Convert(const Options& options, Json& report) {
  const auto start = std::chrono::steady_clock::now();
  OpenedSource source = TRY(checkpoint::OpenSource(options.source));
  if (!options.config.empty())
    source.config_json = TRY(ReadFile(options.config, int64_t{nn::olmo3::kMaxHfConfigBytes}));
  PlanOptions plan_options;
  plan_options.target = TRY(TargetFormat(options, source));
  plan_options.keep_extra = options.keep_extra;
  if (!options.dtype.empty()) plan_options.dtype = TRY(ParseFloatType(options.dtype));
  if (options.vocab_size > 0) plan_options.vocab_size = options.vocab_size;
  if (options.pad_vocab > 0) plan_options.pad_vocab = options.pad_vocab;
  TRY(CheckDestination(options));

  std::vector<Mismatch> mismatches;
  const Result<ConvertPlan> planned = PlanConversion(source, plan_options, &mismatches);
  for (const Mismatch& m : mismatches) {
    report["mismatches"].push_back(
        {{"kind", m.kind}, {"tensor", m.name}, {"found", m.found}, {"expected", m.expected}});
  }
  if (!planned.ok()) return planned.error();
  const ConvertPlan& plan = *planned;
  if (!plan.left_behind.empty()) {
    LogInfo("{} tensors of the optimizer's state stay behind: {} holds weights alone",
            plan.left_behind.size(), options.destination);
  }
  TRY(CheckFreeDisk(options.destination, plan.bytes));

  Output output =
      TRY(plan_options.target == WeightFormat::kHf ? CreateHfOutput(options, source, plan)
                                                   : CreateUlmusOutput(options, plan));
  {
    Progress progress("convert", plan.bytes, {.unit = "bytes"});
    const Status copied = checkpoint::CopyTensors(
        *source.tensors, output.copies, *output.sink,
        {.progress = [&](int64_t bytes) { progress.Update(bytes); }, .stop = StopRequested});
    if (copied.code() == StatusCode::kCancelled) return StoppedError();
    TRY(copied);
  }
  TRY(CopySideFiles(source, plan_options.target, plan.config_json, *output.sink));
  if (StopRequested()) return StoppedError();
  TRY(output.sink->Commit());

  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report["source"] = source.path.string();
  report["from"] = Name(source.format);
  report["destination"] = options.destination;
  report["to"] = Name(plan_options.target);
  report["tensors"] = plan.copies.size();
  report["parameters"] = plan.num_parameters;
  report["left_behind"] = plan.left_behind.size();
  report["files"] = output.num_files;
  report["same_layout"] = output.kept_layout;
  report["bytes"] = plan.bytes;
  report["seconds"] = seconds;
  report["bytes_per_s"] = static_cast<double>(plan.bytes) / seconds;
  return report;
}

int RunConvert(const Options& options) {
  CatchStopSignals();
  Json report;
  const Result<Json> done = Convert(options, report);
  if (!done.ok()) {
    if (options.json) {
      report["error"] = done.error().message();
      fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
    }
    const int code = Fail(done.error());
    return done.error().code() == StatusCode::kCancelled ? kExitRequeue : code;
  }
  if (options.json) {
    fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    fmt::print("{}: {} tensors, {} parameters, {} bytes in {:.1f} s ({:.0f} MB/s), format {}\n",
               options.destination, report.value("tensors", 0),
               report.value("parameters", int64_t{0}), report.value("bytes", int64_t{0}),
               report.value("seconds", 0.0), report.value("bytes_per_s", 0.0) / 1e6,
               report.value("to", ""));
  }
  return kExitOk;
}

}  // namespace

void AddConvert(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand(
      "convert", "Weights between Hugging Face directories and checkpoints of this program");
  const auto options = std::make_shared<Options>();
  command
      ->add_option("SRC", options->source,
                   "Hugging Face directory, .safetensors file, checkpoint or run directory")
      ->required();
  command->add_option("DST", options->destination, "Directory to write; appears when complete")
      ->required();
  command->add_option("--format", options->format,
                      "hf or ulmus; by default ulmus, and hf from a checkpoint of this program");
  command->add_option("--dtype", options->dtype,
                      "bf16, f16, f32 or f64 for all float tensors, rounded to nearest even; by "
                      "default each stays as it is");
  command->add_option("--max-shard-size", options->max_shard_size,
                      "Largest file of an hf directory: 5GB (default), 3GiB, bytes. Without it "
                      "weights that came from an hf directory get its very files again");
  CLI::Option* pad = command
                         ->add_option("--pad-vocab", options->pad_vocab,
                                      "To ulmus: embedding and head get zero rows up to a "
                                      "multiple of N (OLMo-core: 128); cut again "
                                      "on the way to hf")
                         ->check(WholeNumber(1, kMaxRows));
  command
      ->add_option("--vocab-size", options->vocab_size,
                   "Embedding and head get exactly N rows, cut or zero; config.json says so")
      ->check(WholeNumber(1, kMaxRows))
      ->excludes(pad);
  command->add_option("--config", options->config,
                      "config.json of the model, for a source that has none or another");
  command->add_flag("--keep-extra", options->keep_extra,
                    "Carry tensors that the model does not have; they are an error otherwise");
  command->add_flag("--overwrite", options->overwrite, "Replace DST if it holds weights");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Example: ulmus convert Olmo-3-1025-7B runs/start --dtype f32 --pad-vocab 128\n"
      "         ulmus convert runs/start Olmo-3-again --dtype bf16\n"
      "DST appears whole or not at all. SIGINT or SIGTERM leaves nothing behind and ends with exit "
      "code 75.");
  command->callback([options, &run] { run = [options] { return RunConvert(*options); }; });
}

}  // namespace ulmus::apps
