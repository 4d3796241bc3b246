#include "residual_mlp/model.h"

#include <cmath>

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"
#include "nn/rms_norm.h"

namespace ulmus::residual_mlp {
namespace {

using graph::Graph;
using graph::Value;
using graph::Values;

constexpr int64_t kVocab = 256;  // byte values
constexpr float kNormEps = 1e-6f;

const AxisRules& Rules() {
  static const AxisRules rules = {{"batch", {"fsdp"}},
                                  {"embed", {"fsdp"}},
                                  {"hidden", {"tensor"}},
                                  {"vocab", {"tensor"}},
                                  {"layers", {}}};
  return rules;
}

struct Batch {
  Value tokens, labels;
};

struct Weights {
  Value embed, layer_norm, up, down, final_norm, head;
  explicit Weights(const Values& v)
      : embed(v[0]), layer_norm(v[1]), up(v[2]), down(v[3]), final_norm(v[4]), head(v[5]) {}
};

// The norm of rows that are cut along the batch.
Value Norm(Value x, Value gain) {
  const std::string axes[] = {"batch", ""};
  return nn::RmsNorm(x, gain, kNormEps, {.sharding = x.graph().ShardingFor(axes, Loc::current())});
}

// x [B,D] + down(tanh(up(norm(x))))
Value Layer(Value x, Value gain, Value up, Value down) {
  graph::Scope scope(x.graph(), "layer");
  const Value hidden = ShardAs(Tanh(Dot(Norm(x, gain), up)), {"batch", "hidden"});  // [B,F]
  return ShardAs(x + Dot(hidden, down), {"batch", ""});
}

// Sum over the batch of the cross entropy in nats; divide by the batch for the mean.
Value LossSum(const Config& config, const Weights& w, const Batch& batch) {
  const int64_t B = batch.tokens.dim(0), D = config.model.width();
  Value x =
      ShardAs(Reshape(Take(w.embed, batch.tokens), {B, D}), {"batch", ""});  // [B,C,E] -> [B,D]
  x = graph::Scan({x}, {w.layer_norm, w.up, w.down}, [&](Values carry, Values layer) {
        const auto body = [](Values in) { return Values{Layer(in[0], in[1], in[2], in[3])}; };
        const Values in = {carry[0], layer[0], layer[1], layer[2]};
        return graph::ScanStep{config.model.remat ? Remat(in, body) : body(in), {}};
      }).carry[0];
  graph::Scope scope(x.graph(), "loss");
  const Value logits = ShardAs(Dot(Norm(x, w.final_norm), w.head), {"batch", "vocab"});  // [B,V]
  CHECK_SHAPE(logits, {B, kVocab});
  return ReduceSum(LogSumExp(logits) - TakeAlongLast(logits, batch.labels), {0});
}

Value Mean32(Value sum, int64_t count) { return sum / static_cast<double>(count); }

Batch BatchParameters(Graph& g, const Config& config) {
  const std::string tokens_axes[] = {"batch", ""}, labels_axes[] = {"batch"};
  const Loc here = Loc::current();
  return {
      g.Parameter("tokens", {DType::kI32, {config.train.batch_size, config.model.context_bytes}},
                  g.ShardingFor(tokens_axes, here)),
      g.Parameter("labels", {DType::kI32, {config.train.batch_size}},
                  g.ShardingFor(labels_axes, here))};
}

Value SumOfSquares(const Values& tensors) {
  Value sum;
  for (Value t : tensors) {
    Dims axes;
    for (int64_t d = 0; d < t.rank(); ++d) axes.push_back(d);
    sum = graph::AddMaybe(sum, ReduceSum(Square(t), axes));
  }
  return sum;
}

struct Moments {
  Value weight, exp_avg, exp_avg_sq;
};

// One AdamW update. bias1/bias2 = 1 - beta^step, scalars.
Moments AdamW(const Config::Optim& optim, const Moments& old, Value grad, Value lr, Value bias1,
              Value bias2) {
  const auto spread = [&](Value scalar) { return BroadcastTo(scalar, old.weight.shape()); };
  const Value exp_avg = old.exp_avg * optim.beta1 + grad * (1 - optim.beta1);
  const Value exp_avg_sq = old.exp_avg_sq * optim.beta2 + Square(grad) * (1 - optim.beta2);
  const Value direction = exp_avg / spread(bias1) / (Sqrt(exp_avg_sq / spread(bias2)) + optim.eps);
  return {old.weight - spread(lr) * (direction + old.weight * optim.weight_decay), exp_avg,
          exp_avg_sq};
}

}  // namespace

std::vector<ParameterSpec> Parameters(const Config& config) {
  const int64_t L = config.model.num_layers, D = config.model.width(),
                F = config.model.hidden_width;
  const auto f32 = [](Shape shape) { return TensorType{DType::kF32, std::move(shape)}; };
  // Fan-in scaling; `down` also by the depth, so that the residual stream keeps its size.
  return {
      {"embed.weight", f32({kVocab, config.model.embedding_width}), {"", ""}, 1.0},
      {"layers.norm.weight", f32({L, D}), {"layers", ""}, 0},
      {"layers.up.weight",
       f32({L, D, F}),
       {"layers", "embed", "hidden"},
       1 / std::sqrt(static_cast<double>(D))},
      {"layers.down.weight",
       f32({L, F, D}),
       {"layers", "hidden", "embed"},
       1 / std::sqrt(static_cast<double>(F * 2 * L))},
      {"norm.weight", f32({D}), {""}, 0},
      {"head.weight", f32({D, kVocab}), {"embed", "vocab"}, 1 / std::sqrt(static_cast<double>(D))},
  };
}

Program TrainStep(const Config& config) {
  const Loc here = Loc::current();
  Graph g("train_step", MeshOf(config), Rules());
  const std::vector<ParameterSpec> specs = Parameters(config);
  std::vector<Moments> state;
  Values weights;
  for (const ParameterSpec& spec : specs) {
    const Sharding sharding = g.ShardingFor(spec.axes, here);
    state.push_back({g.Parameter(spec.name, spec.type, sharding),
                     g.Parameter("exp_avg." + spec.name, spec.type, sharding),
                     g.Parameter("exp_avg_sq." + spec.name, spec.type, sharding)});
    weights.push_back(state.back().weight);
  }
  const Batch batch = BatchParameters(g, config);
  const Value lr = g.Parameter("lr", {DType::kF32, {}}),
              adam_step = g.Parameter("adam_step", {DType::kF32, {}});

  const Value loss = Mean32(LossSum(config, Weights(weights), batch), config.train.batch_size);
  Values grads = graph::Grad(loss, weights);
  for (size_t i = 0; i < grads.size(); ++i) grads[i] = ShardAs(grads[i], specs[i].axes);
  const Value grad_norm = Sqrt(SumOfSquares(grads));
  // min(1, max_norm / norm): one factor for all gradients.
  const Value clip = Min(SplatLike(grad_norm, 1), config.optim.max_grad_norm / (grad_norm + 1e-6));

  g.Result("loss", loss);
  g.Result("grad_norm", grad_norm);
  graph::Scope scope(g, "optimizer");
  const auto bias = [&](double beta) { return 1.0 - Pow(SplatLike(adam_step, beta), adam_step); };
  const Value bias1 = bias(config.optim.beta1), bias2 = bias(config.optim.beta2);
  for (size_t i = 0; i < specs.size(); ++i) {
    const Moments next = AdamW(config.optim, state[i],
                               grads[i] * BroadcastTo(clip, grads[i].shape()), lr, bias1, bias2);
    const Sharding sharding = g.ShardingFor(specs[i].axes, here);
    g.Result(specs[i].name, next.weight, sharding, state[i].weight);
    g.Result("exp_avg." + specs[i].name, next.exp_avg, sharding, state[i].exp_avg);
    g.Result("exp_avg_sq." + specs[i].name, next.exp_avg_sq, sharding, state[i].exp_avg_sq);
  }
  return g.ToProgram({.use_kernels = config.model.kernels});
}

Program EvalLoss(const Config& config) {
  Graph g("eval_loss", MeshOf(config), Rules());
  Values weights;
  for (const ParameterSpec& spec : Parameters(config)) {
    weights.push_back(g.Parameter(spec.name, spec.type, g.ShardingFor(spec.axes, Loc::current())));
  }
  const Batch batch = BatchParameters(g, config);
  g.Result("loss", Mean32(LossSum(config, Weights(weights), batch), config.train.batch_size));
  return g.ToProgram({.use_kernels = config.model.kernels});
}

}  // namespace ulmus::residual_mlp
