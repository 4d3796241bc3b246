#include "nn/olmo3/testing/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/file.h"
#include "graph/autodiff.h"
#include "graph/functions.h"
#include "nn/olmo3/sharding.h"

namespace ulmus::nn::olmo3 {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;

Golden LoadGolden() {
  const char* root = std::getenv("ULMUS_SOURCE_DIR");
  CHECK(root != nullptr, "set ULMUS_SOURCE_DIR to the source tree; ctest does");
  const Path path = Path(root) / "src/nn/olmo3/testdata/tiny_model.json";
  const Result<std::string> text = ReadFile(path);
  CHECK(text.ok(), "{}", text.status().ToString());
  Golden golden;
  golden.json = nlohmann::json::parse(*text);
  const auto& c = golden.json["config"];
  Config& config = golden.config;
  config.vocab_size = c["vocab_size"];
  config.hidden_size = c["hidden_size"];
  config.intermediate_size = c["intermediate_size"];
  config.num_layers = c["num_hidden_layers"];
  config.num_heads = c["num_attention_heads"];
  config.num_kv_heads = c["num_key_value_heads"];
  config.head_dim = c["head_dim"];
  config.rms_norm_eps = c["rms_norm_eps"];
  config.rope_theta = c["rope_theta"];
  config.sliding_window = c["sliding_window"];
  config.max_position_embeddings = 8192;
  const Status valid = ValidateConfig(config);
  CHECK(valid.ok(), "{}", valid.ToString());
  golden.names = golden.json["param_order"].get<std::vector<std::string>>();
  golden.tokens = golden.json["input_ids"].get<std::vector<int32_t>>();
  return golden;
}

std::vector<GoldenVariant> GoldenVariants(const Golden& golden) {
  Config full = golden.config, all = golden.config;
  full.yarn = all.yarn = golden.yarn;
  all.yarn_layers = YarnLayers::kAll;
  return {{"default", golden.config},
          {"yarn_full_attention_only", full},
          {"yarn_all_layers_maxtext", all}};
}

double FormulaWeight(int64_t tensor, int64_t index, bool is_norm) {
  const double s =
      std::sin(0.7 * static_cast<double>(index) + 1.3 * static_cast<double>(tensor) + 1.0);
  return is_norm ? 1 + 0.1 * s : 0.08 * s;
}

std::vector<RefTensor> FormulaWeights(const Config& config) {
  const std::vector<HfTensor> tensors = HfTensors(config);
  std::vector<std::string> names;
  for (const HfTensor& tensor : tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  const std::vector<ParameterSpec> specs = Parameters(config);
  std::vector<RefTensor> weights;
  for (const ParameterSpec& spec : specs) weights.push_back(RefTensor::Zeros(spec.type));
  for (const HfTensor& tensor : tensors) {
    const int64_t number = std::ranges::lower_bound(names, tensor.name) - names.begin();
    const int64_t size = tensor.shape.num_elements();
    const int64_t first = std::max<int64_t>(tensor.group, 0) * size;
    const auto p = static_cast<size_t>(tensor.parameter);
    for (int64_t i = 0; i < size; ++i) {
      weights[p].data[static_cast<size_t>(first + i)] =
          FormulaWeight(number, i, IsNorm(specs[p].kind));
    }
  }
  return weights;
}

HostTensor FormulaTokens(const Config& config, int64_t B, int64_t T) {
  HostTensor tokens({DType::kI32, {B, T}});
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t i = 0; i < T; ++i) {
      tokens.Set(b * T + i,
                 static_cast<double>((7 * i * i + 3 * i + 5 + 11 * b) % config.vocab_size));
    }
  }
  return tokens;
}

std::unique_ptr<Graph> LossProgram(const Config& config, const LossProgramOptions& options) {
  auto graph = std::make_unique<Graph>("loss", options.mesh, DefaultRules(config, options.mesh));
  const Loc here = Loc::current();
  const Values parameters = DeclareParameters(*graph, config);
  const Weights weights = BindWeights(config, parameters);
  const std::string axes[] = {"batch", "seq"};
  const TensorType ids{DType::kI32, {options.B, options.T}};
  const Sharding rows = graph->ShardingFor(axes, here);
  const Value tokens = graph->Parameter("tokens", ids, rows);
  Inputs inputs{.tokens = tokens};
  if (options.documents) {
    inputs.segment_ids = graph->Parameter("segment_ids", ids, rows);
    inputs.positions = DocumentPositions(inputs.segment_ids);
  }
  const Value hidden = Hidden(config, weights, inputs, options.forward);
  if (options.logits) graph->Result("logits", Logits(config, weights, hidden, options.forward));
  const LossSums sums =
      ComputeLossSums(config, weights, hidden, ShiftLabels(tokens), options.forward);
  const Value ce = sums.nll / sums.count, z = sums.z * 1e-5 / sums.count;
  graph->Result("ce", ce);
  graph->Result("z", z);
  const Values grads = Grad(ce + z, parameters);
  const std::vector<ParameterSpec> specs = Parameters(config);
  for (size_t i = 0; i < grads.size(); ++i) {
    graph->Result("grad." + specs[i].name, grads[i], graph->ShardingFor(specs[i].axes, here));
  }
  return graph;
}

}  // namespace ulmus::nn::olmo3
