#include "apps/convert_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/json.h"
#include "checkpoint/contained_file.h"  // Quoted
#include "checkpoint/element_cast.h"
#include "nn/olmo3/parameters.h"

namespace ulmus::apps {
namespace {

using checkpoint::OpenedSource;
using checkpoint::Quoted;
using checkpoint::TensorCopy;
using checkpoint::TensorInfo;
using checkpoint::WeightFormat;
using nn::olmo3::Config;
using nn::olmo3::HfTensor;
using nn::olmo3::TensorKind;
using Json = OrderedJson;

constexpr size_t kMaxTableLines = 40;

bool IsVocabTensor(const std::string& name) {
  return name == "model.embed_tokens.weight" || name == "lm_head.weight";
}

bool IsOptimizerState(const std::string& name) {
  return name.starts_with("exp_avg.") || name.starts_with("exp_avg_sq.");
}

// Rows that embedding and head may have in the source beyond the model's vocabulary: padding, which
// our checkpoints have and Hugging Face's have not.
bool ShapeFits(const OpenedSource& source, const TensorInfo& found, const Shape& expected) {
  const Shape& shape = found.type.shape;
  if (shape == expected) return true;
  return source.format == WeightFormat::kUlmus && IsVocabTensor(found.name) && shape.rank() == 2 &&
         shape.dim(1) == expected.dim(1) && shape.dim(0) > expected.dim(0);
}

std::vector<Mismatch> Compare(const OpenedSource& source, const std::vector<HfTensor>& model,
                              bool keep_extra) {
  std::vector<Mismatch> mismatches;
  std::map<std::string, const HfTensor*> expected;
  for (const HfTensor& tensor : model) expected[tensor.name] = &tensor;
  for (const TensorInfo& tensor : source.tensors->tensors()) {
    const auto it = expected.find(tensor.name);
    if (it == expected.end()) {
      if (!keep_extra && !(source.format == WeightFormat::kUlmus && IsOptimizerState(tensor.name)))
        mismatches.push_back({"extra", tensor.name, tensor.type.ToString(), "no such tensor"});
      continue;
    }
    const Shape& shape = it->second->shape;
    if (!ShapeFits(source, tensor, shape)) {
      mismatches.push_back(
          {"reshaped", tensor.name, tensor.type.shape.ToString(), shape.ToString()});
    } else if (!IsFloat(tensor.type.dtype)) {
      mismatches.push_back(
          {"dtype", tensor.name, std::string(Name(tensor.type.dtype)), "bf16, f16, f32 or f64"});
    }
    expected.erase(it);
  }
  for (const auto& [name, tensor] : expected)
    mismatches.push_back({"missing", name, "nothing", tensor->shape.ToString()});
  std::ranges::stable_sort(mismatches, {}, &Mismatch::kind);
  return mismatches;
}

// What the model's table says about a head that is there or is not.
std::string HeadHint(const Config& config, const std::vector<Mismatch>& mismatches) {
  for (const Mismatch& m : mismatches) {
    if (m.name != "lm_head.weight") continue;
    if (m.kind == "extra" && config.tie_word_embeddings)
      return "\nconfig.json ties the head to the embedding (tie_word_embeddings true): a head of "
             "its "
             "own contradicts it.";
    if (m.kind == "missing")
      return "\nconfig.json has tie_word_embeddings false, so the head is needed; it is never "
             "taken "
             "from the embedding.";
  }
  return "";
}

Status CheckVocabSize(const Config& config, int64_t vocab_size) {
  for (const auto& [name, id] : {std::pair("pad_token_id", config.pad_token_id),
                                 std::pair("bos_token_id", config.bos_token_id),
                                 std::pair("eos_token_id", config.eos_token_id)}) {
    if (id && *id >= vocab_size) {
      return InvalidArgumentError("--vocab-size {}: would cut the row of {} {}; give at least {}",
                                  vocab_size, name, *id, *id + 1);
    }
  }
  return Status();
}

int64_t TargetRows(const OpenedSource& source, const Config& config, const PlanOptions& options,
                   int64_t source_rows) {
  const int64_t vocab = options.vocab_size.value_or(config.vocab_size);
  if (options.pad_vocab)
    return (vocab + *options.pad_vocab - 1) / *options.pad_vocab * *options.pad_vocab;
  // Between our own checkpoints padding stays unless a size was given.
  if (options.target == WeightFormat::kUlmus && source.format == WeightFormat::kUlmus &&
      !options.vocab_size)
    return source_rows;
  return vocab;
}

// "bfloat16" for bf16: torch's names, which config.json uses.
std::string_view TorchName(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kF32:
      return "float32";
    default:
      return "float64";
  }
}

// Changes only what the conversion changed; a text that already says so stays byte for byte.
Result<std::string> EditConfig(const std::string& text, const PlanOptions& options) {
  Result<Json> parsed = ParseOrderedJson(text);
  if (!parsed.ok() || !parsed->is_object())
    return DataLossError("config.json: {}",
                         parsed.ok() ? std::string("no JSON object") : parsed.error().message());
  Json& config = *parsed;
  bool changed = false;
  const auto set = [&](const char* key, const Json& value) {
    if (config.contains(key) && config[key] != value) {
      config[key] = value;
      changed = true;
    }
  };
  if (options.vocab_size) set("vocab_size", *options.vocab_size);
  if (options.dtype && options.target == WeightFormat::kHf) {
    set("dtype", TorchName(*options.dtype));
    set("torch_dtype", TorchName(*options.dtype));
  }
  return changed ? config.dump(2) + "\n" : text;
}

}  // namespace

std::string MismatchTable(const std::vector<Mismatch>& mismatches) {
  size_t width = 0;
  for (const Mismatch& m : mismatches) width = std::max(width, std::min<size_t>(m.name.size(), 60));
  std::string table;
  for (size_t i = 0; i < std::min(mismatches.size(), kMaxTableLines); ++i) {
    const Mismatch& m = mismatches[i];
    table += fmt::format("\n  {:<8}  {:<{}}  found {}, expected {}", m.kind, Quoted(m.name),
                         width + 2, m.found, m.expected);
  }
  if (mismatches.size() > kMaxTableLines)
    table += fmt::format("\n  and {} more", mismatches.size() - kMaxTableLines);
  return table;
}

Result<ConvertPlan> PlanConversion(const OpenedSource& source, const PlanOptions& options,
                                   std::vector<Mismatch>* mismatches) {
  if (!source.config_json) {
    return NotFoundError(
        "{}: has no config.json, so its tensors cannot be checked; name one with "
        "--config",
        source.path);
  }
  const Config config = TRY(nn::olmo3::ConfigFromHf(*source.config_json));
  if (options.pad_vocab && options.target == WeightFormat::kHf) {
    return InvalidArgumentError(
        "--pad-vocab is for --format ulmus; a Hugging Face directory has the "
        "rows that config.json says: use --vocab-size");
  }
  if (options.vocab_size) TRY(CheckVocabSize(config, *options.vocab_size));

  const std::vector<HfTensor> model = nn::olmo3::HfTensors(config);
  *mismatches = Compare(source, model, options.keep_extra);
  if (!mismatches->empty()) {
    return DataLossError("{}: {} tensors do not fit the model of config.json:{}{}", source.path,
                         mismatches->size(), MismatchTable(*mismatches),
                         HeadHint(config, *mismatches));
  }

  ConvertPlan plan;
  std::set<std::string> known;
  for (const HfTensor& tensor : model) known.insert(tensor.name);
  const auto tensors = source.tensors->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorInfo target = tensors[i];
    if (IsOptimizerState(target.name) && !known.contains(target.name)) {
      plan.left_behind.push_back(target.name);
      continue;
    }
    if (options.dtype && IsFloat(target.type.dtype)) target.type.dtype = *options.dtype;
    if (IsVocabTensor(target.name) && known.contains(target.name)) {
      const int64_t rows = TargetRows(source, config, options, target.type.shape.dim(0));
      if (rows != target.type.shape.dim(0)) plan.reshaped_vocab = true;
      target.type.shape = {rows, target.type.shape.dim(1)};
    }
    plan.num_parameters += target.type.shape.num_elements();
    plan.bytes += target.type.size_bytes();
    plan.copies.push_back({static_cast<int64_t>(i), std::move(target)});
  }
  plan.config_json = TRY(EditConfig(*source.config_json, options));
  return plan;
}

}  // namespace ulmus::apps
