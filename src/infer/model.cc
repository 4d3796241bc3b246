#include "infer/model.h"

#include <algorithm>
#include <optional>

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/open.h"
#include "checkpoint/read_block.h"
#include "kernels/table.h"
#include "nn/olmo3/decode.h"
#include "nn/olmo3/sharding.h"

namespace ulmus::infer {
namespace {

using checkpoint::TensorInfo;
using checkpoint::TensorSource;
using nn::olmo3::Config;

constexpr size_t kMaxListed = 20;  // faults of a checkpoint that a message lists

bool IsMoment(std::string_view name) {
  return name.starts_with("exp_avg.") || name.starts_with("exp_avg_sq.");
}

// Padding rows of the vocabulary may follow those that count.
bool ShapeFits(const Config& config, const Shape& found, const Shape& expected) {
  if (found == expected) return true;
  return found.rank() == 2 && expected.rank() == 2 && found.dim(1) == expected.dim(1) &&
         expected.dim(0) == config.vocab_size && found.dim(0) > expected.dim(0);
}

Status CheckTensors(const Config& config, const TensorSource& source, const Path& path) {
  std::vector<std::string> faults, expected_names;
  for (const nn::olmo3::HfTensor& expected : nn::olmo3::HfTensors(config)) {
    expected_names.push_back(expected.name);
    const auto index = checkpoint::FindTensor(source, expected.name);
    if (!index) {
      faults.push_back(fmt::format("missing: {} {}", expected.name, expected.shape.ToString()));
      continue;
    }
    const TensorInfo& found = source.tensors()[static_cast<size_t>(*index)];
    if (!ShapeFits(config, found.type.shape, expected.shape)) {
      faults.push_back(fmt::format("shape of {}: {}, expected {}", expected.name,
                                   found.type.shape.ToString(), expected.shape.ToString()));
    } else if (!IsFloat(found.type.dtype)) {
      faults.push_back(
          fmt::format("type of {}: {}, expected floats", expected.name, Name(found.type.dtype)));
    }
  }
  std::ranges::sort(expected_names);
  for (const TensorInfo& found : source.tensors()) {
    if (!IsMoment(found.name) && !std::ranges::binary_search(expected_names, found.name))
      faults.push_back(fmt::format("not of this model: {} {}", found.name, found.type.ToString()));
  }
  if (faults.empty()) return {};
  const size_t listed = std::min(faults.size(), kMaxListed);
  std::string list;
  for (size_t i = 0; i < listed; ++i) list += "\n  " + faults[i];
  if (listed < faults.size()) list += fmt::format("\n  and {} more", faults.size() - listed);
  return DataLossError("{}: the weights do not fit config.json ({} of {} tensors):{}",
                       path.string(), faults.size(), expected_names.size(), list);
}

// eos_token_id of generation_config.json may be a number or a list.
Result<std::vector<int64_t>> EosTokens(const TensorSource& source, const Config& config) {
  std::vector<int64_t> ids;
  if (const auto text = source.LoadSideFile("generation_config.json"); text.ok()) {
    const Result<Json> parsed = ParseJson(*text);
    if (!parsed.ok() || !parsed->is_object())
      return DataLossError("generation_config.json: {}; mend or remove it",
                           parsed.ok() ? std::string("no JSON object") : parsed.error().message());
    const Json& json = *parsed;
    const auto value = json.find("eos_token_id");
    if (value != json.end() && !value->is_null()) {
      for (const Json& id : value->is_array() ? *value : Json::array({*value})) {
        if (!id.is_number_integer())
          return DataLossError("generation_config.json: eos_token_id is {}, expected token ids",
                               JsonExcerpt(id));
        ids.push_back(id.get<int64_t>());
      }
      return ids;
    }
  } else if (text.error().code() != StatusCode::kNotFound) {
    return text.status();
  }
  if (config.eos_token_id) ids.push_back(*config.eos_token_id);
  return ids;
}

Result<HostTensor> ReadTarget(const TensorSource& source, const WeightTarget& target,
                              const Dims& offsets, const Shape& block) {
  const DType to = target.type.dtype;
  const auto read = [&](const std::string& name, const Dims& at, const Shape& shape,
                        std::span<std::byte> out) -> Status {
    const auto index = checkpoint::FindTensor(source, name);
    if (!index) return NotFoundError("{}: not in the checkpoint", name);
    const int64_t overflows = TRY(checkpoint::ReadBlockAs(source, *index, at, shape, to, out));
    if (overflows == 0) return {};
    return OutOfRangeError("{}: {} values do not fit {}; choose --dtype f32 or bf16", name,
                           overflows, Name(to));
  };
  return checkpoint::ReadStack(target.sources, target.stacked, to, offsets, block, read);
}

Result<Checkpoint> MakeCheckpoint(std::unique_ptr<TensorSource> source,
                                  std::optional<std::string> config_json, const Path& path) {
  if (!config_json)
    return NotFoundError("{}: no config.json with it, which is needed to compute with the weights",
                         path);
  Checkpoint result{
      .path = path, .folder = path, .source = std::move(source), .config = {}, .eos_token_ids = {}};
  result.config = TRY(nn::olmo3::ConfigFromHf(*config_json, (path / "config.json").string()));
  result.config.vocab_multiple = 1;
  TRY(CheckTensors(result.config, *result.source, path));
  result.eos_token_ids = TRY(EosTokens(*result.source, result.config));
  return result;
}

}  // namespace

Result<Checkpoint> OpenCheckpoint(const Path& path) {
  checkpoint::OpenedSource opened = TRY(checkpoint::OpenSource(path));
  Checkpoint result =
      TRY(MakeCheckpoint(std::move(opened.tensors), std::move(opened.config_json), opened.path));
  result.path = path;
  return result;
}

Result<Checkpoint> OpenCheckpoint(std::unique_ptr<TensorSource> source, const Path& path) {
  std::optional<std::string> config_json;
  Result<std::string> text = source->LoadSideFile("config.json");
  if (text.ok())
    config_json = *std::move(text);
  else if (text.error().code() != StatusCode::kNotFound)
    return text.status();
  return MakeCheckpoint(std::move(source), std::move(config_json), path);
}

std::vector<WeightTarget> UnstackedTargets(const Config& config, DType dtype, const Mesh& mesh) {
  const auto tensors = nn::olmo3::DecodeWeights(config, dtype);
  const auto shardings = nn::olmo3::DecodeWeightShardings(config, mesh);
  std::vector<WeightTarget> targets;
  for (size_t i = 0; i < tensors.size(); ++i)
    targets.push_back({.name = tensors[i].name,
                       .type = tensors[i].type,
                       .sharding = shardings[i],
                       .sources = {tensors[i].name}});
  return targets;
}

std::vector<WeightTarget> StackedTargets(const Config& config, DType dtype, const Mesh& mesh) {
  const AxisRules rules = nn::olmo3::DefaultRules(config, mesh);
  std::vector<WeightTarget> targets;
  for (const nn::olmo3::ParameterSpec& spec : nn::olmo3::Parameters(config)) {
    Result<Sharding> sharding = ApplyRules(rules, mesh, spec.axes);
    CHECK(sharding.ok(), "{}: {}", spec.name, sharding.status().message());
    targets.push_back(
        {.name = spec.name,
         .type = {nn::olmo3::IsNorm(spec.kind) ? DType::kF32 : dtype, spec.type.shape},
         .sharding = std::move(*sharding),
         .sources = spec.hf_names,
         .stacked = spec.stacked});
  }
  return targets;
}

Result<std::vector<pjrt::ShardedArray>> LoadWeights(pjrt::Client& client,
                                                    const Checkpoint& checkpoint,
                                                    std::span<const WeightTarget> targets,
                                                    const Mesh& mesh) {
  int64_t total_bytes = 0;
  for (const WeightTarget& target : targets) total_bytes += target.type.size_bytes();
  Progress progress("load weights", total_bytes, {.unit = "bytes"});
  std::vector<pjrt::ShardedArray> arrays;
  for (const WeightTarget& target : targets) {
    auto layout = TRY(pjrt::ArrayLayout::Create(target.type, mesh, target.sharding));
    const auto block = [&](const Dims& offsets, const Shape& shape) {
      return ReadTarget(*checkpoint.source, target, offsets, shape);
    };
    arrays.push_back(TRY(pjrt::ShardedArray::FromBlocks(client, std::move(layout), block)));
    progress.Add(target.type.size_bytes());
  }
  return arrays;
}

Result<std::unique_ptr<pjrt::Executable>> Compile(pjrt::Client& client, const graph::Graph& graph,
                                                  pjrt::CompilationCache* cache) {
  const bool kernels = client.platform() == "cpu";
  if (kernels) TRY(pjrt::RegisterCustomCalls(client.plugin(), kernels::AllKernels()));
  const Program program = graph.ToProgram({.platform = client.platform(), .use_kernels = kernels});
  return client.Compile(program, {}, cache);
}

}  // namespace ulmus::infer
