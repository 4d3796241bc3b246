#include "infer/sequence_model.h"

#include <algorithm>

#include "graph/ops.h"
#include "nn/olmo3/model.h"
#include "nn/olmo3/sharding.h"

namespace ulmus::infer {
namespace {

using graph::Graph;
using graph::Value;
using nn::olmo3::Config;

constexpr int64_t kRowsPerCall = 128;  // 128 x 100278 logits are 51 MB

struct HiddenGraph {
  std::unique_ptr<Graph> graph;
  std::map<std::string, size_t> results;  // captured name -> index
};

HiddenGraph MakeHiddenGraph(const Config& config, const SequenceModelOptions& options,
                            std::span<const WeightTarget> targets) {
  HiddenGraph made{std::make_unique<Graph>("hidden", Mesh(), nn::olmo3::DefaultRules(config, {})),
                   {}};
  Graph& g = *made.graph;
  graph::Values weights;
  for (const WeightTarget& target : targets)
    weights.push_back(g.Parameter(target.name, target.type));
  const Value tokens = g.Parameter("tokens", {DType::kI32, {1, options.length}});
  std::vector<std::pair<std::string, Value>> captured;
  nn::olmo3::ForwardOptions forward{.dtype = options.dtype};
  if (options.intermediates) {
    forward.scan = false;
    forward.capture = [&](const std::string& name, Value value) {
      captured.emplace_back(name, Convert(value, DType::kF32));
    };
  }
  const auto bound = nn::olmo3::BindWeights(config, weights);
  g.Result("hidden", nn::olmo3::Hidden(config, bound, {.tokens = tokens}, forward));
  for (const auto& [name, value] : captured) {
    made.results[name] = g.results().size();
    g.Result(name, value);
  }
  return made;
}

// Logits of `rows` positions from `first` on.
std::unique_ptr<Graph> MakeLogitsGraph(const Config& config, const SequenceModelOptions& options,
                                       int64_t rows) {
  auto owned = std::make_unique<Graph>("logits", Mesh(), nn::olmo3::DefaultRules(config, {}));
  Graph& g = *owned;
  const int64_t D = config.hidden_size;
  nn::olmo3::Weights weights;
  weights.head = g.Parameter("head", {options.dtype, {config.vocab_size, D}});
  const Value hidden = g.Parameter("hidden", {options.dtype, {1, options.length, D}});
  const Value first = g.Parameter("first", {DType::kI32, {}});
  const Value zero = Splat(g, 0, {DType::kI32, {}});
  const Value part = DynamicSlice(hidden, {zero, first, zero}, {1, rows, D});
  const Value logits = nn::olmo3::Logits(config, weights, part, {.dtype = options.dtype});
  g.Result("logits", Reshape(logits, {rows, config.vocab_size}));
  return owned;
}

}  // namespace

std::vector<std::string> IntermediateNames(const Config& config) {
  std::vector<std::string> names = {"embedding"};
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const char* part : {"q_norm", "k_norm", "q_rope", "k_rope", "attention", "mlp", "output"})
      names.push_back(fmt::format("layers.{}.{}", layer, part));
  }
  names.emplace_back("final_norm");
  return names;
}

Result<std::unique_ptr<SequenceModel>> SequenceModel::Create(pjrt::Client& client,
                                                             const Checkpoint& checkpoint,
                                                             const SequenceModelOptions& options,
                                                             pjrt::CompilationCache* cache) {
  if (options.length < 1)
    return InvalidArgumentError("sequences of {} tokens, expected at least 1", options.length);
  auto model = std::unique_ptr<SequenceModel>(new SequenceModel(client, options));
  const Config& config = checkpoint.config;
  model->vocab_size_ = config.vocab_size;
  model->rows_ = std::min(options.length, kRowsPerCall);
  const auto targets = StackedTargets(config, options.dtype, {});
  HiddenGraph hidden = MakeHiddenGraph(config, options, targets);
  model->intermediate_index_ = std::move(hidden.results);
  model->hidden_program_ = TRY(Compile(client, *hidden.graph, cache));
  model->logits_program_ =
      TRY(Compile(client, *MakeLogitsGraph(config, options, model->rows_), cache));
  model->weights_ = TRY(LoadWeights(client, checkpoint, targets, {}));
  model->head_ = config.tie_word_embeddings ? 0 : model->weights_.size() - 1;
  return model;
}

Status SequenceModel::SetTokens(std::span<const int32_t> tokens) {
  if (static_cast<int64_t>(tokens.size()) != options_.length)
    return InvalidArgumentError("{} tokens, expected {}", tokens.size(), options_.length);
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t] < 0 || tokens[t] >= vocab_size_)
      return InvalidArgumentError("token id {} at position {} is outside the vocabulary, 0 to {}",
                                  tokens[t], t, vocab_size_ - 1);
  }
  const HostTensor ids(Shape{1, options_.length}, tokens);
  pjrt::ShardedArray input = TRY(pjrt::ShardedArray::FromHost(
      client_, ids, hidden_program_->argument_layout(hidden_program_->num_arguments() - 1)));
  std::vector<pjrt::ShardedArray*> args;
  for (pjrt::ShardedArray& weight : weights_) args.push_back(&weight);
  args.push_back(&input);
  results_.clear();  // before the next ones need memory
  results_ = TRY(hidden_program_->Execute(args));
  return {};
}

Result<HostTensor> SequenceModel::Logits(int64_t first) {
  CHECK(!results_.empty() && first >= 0 && first < options_.length, "position {}", first);
  // The last call overlaps the one before it, so that one program serves all.
  const int64_t start = std::min(first, options_.length - rows_);
  const auto start32 = static_cast<int32_t>(start);
  pjrt::ShardedArray at = TRY(pjrt::ShardedArray::FromHost(
      client_, HostTensor(Shape{}, std::span<const int32_t>(&start32, 1)),
      logits_program_->argument_layout(2)));
  pjrt::ShardedArray* args[] = {&weights_[head_], &results_[0], &at};
  const auto results = TRY(logits_program_->Execute(args));
  HostTensor logits = TRY(results[0].ToHost());
  if (start == first) return logits;
  return CopyBlock(logits, {first - start, 0}, {rows_ - (first - start), vocab_size_});
}

Result<HostTensor> SequenceModel::Intermediate(const std::string& name) const {
  const auto it = intermediate_index_.find(name);
  if (it == intermediate_index_.end())
    return NotFoundError("{}: no such intermediate tensor", name);
  return results_[it->second].ToHost();
}

}  // namespace ulmus::infer
