#include "train/step_program.h"

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"
#include "nn/olmo3/parameters.h"
#include "nn/olmo3/remat.h"
#include "nn/olmo3/sharding.h"
#include "optim/torch_cpu_norm.h"

namespace ulmus::train {
namespace {

using graph::Graph;
using graph::Value;
using graph::Values;
using nn::olmo3::Config;
using nn::olmo3::ParameterSpec;

const TensorType kScalar{DType::kF32, {}};

Result<std::vector<optim::ParamRates>> RatesOf(const Config& model, const StepOptions& options) {
  const std::vector<ParameterSpec> specs = nn::olmo3::Parameters(model);
  std::vector<std::string> names;
  for (const ParameterSpec& spec : specs)
    names.insert(names.end(), spec.hf_names.begin(), spec.hf_names.end());
  const auto by_name = TRY(optim::AssignParamGroups(names, options.groups, options.weight_decay));
  std::vector<optim::ParamRates> rates;
  size_t next = 0;
  for (const ParameterSpec& spec : specs) {
    rates.push_back(by_name[next]);
    for (size_t i = 0; i < spec.hf_names.size(); ++i, ++next) {
      if (by_name[next].group == rates.back().group) continue;
      return InvalidArgumentError(
          "parameter group: {} and {} are in different groups, but share one stack of layers; "
          "name all layers of a kind with `*`",
          spec.hf_names[0], spec.hf_names[i]);
    }
  }
  return rates;
}

struct BatchValues {
  Value tokens, loss_mask, segment_ids;
  Values All() const {
    Values all = {tokens, loss_mask};
    if (segment_ids) all.push_back(segment_ids);
    return all;
  }
  static BatchValues From(const Values& v) { return {v[0], v[1], v.size() > 2 ? v[2] : Value()}; }
};

BatchValues DeclareBatch(Graph& g, const StepOptions& options, const Shape& shape) {
  std::vector<std::string> axes = {"batch", "seq"};
  if (shape.rank() == 3) axes.insert(axes.begin(), "");
  const Sharding sharding = g.ShardingFor(axes, Loc::current());
  BatchValues batch;
  batch.tokens = g.Parameter("tokens", {DType::kI32, shape}, sharding);
  batch.loss_mask = g.Parameter("loss_mask", {DType::kBool, shape}, sharding);
  if (options.documents)
    batch.segment_ids = g.Parameter("segment_ids", {DType::kI32, shape}, sharding);
  return batch;
}

// batch: [b,T]
nn::olmo3::LossSums SumsOf(const Config& model, const StepOptions& options, const Values& weights,
                           const BatchValues& batch) {
  const nn::olmo3::Weights bound = nn::olmo3::BindWeights(model, weights);
  nn::olmo3::Inputs inputs{.tokens = batch.tokens, .segment_ids = batch.segment_ids};
  if (batch.segment_ids) inputs.positions = nn::olmo3::DocumentPositions(batch.segment_ids);
  const Value hidden = nn::olmo3::Hidden(model, bound, inputs, options.forward);
  const Value next = nn::olmo3::ShiftLabels(batch.tokens);
  const Value labels = Select(batch.loss_mask, next, SplatLike(next, -100));
  return nn::olmo3::ComputeLossSums(model, bound, hidden, labels, options.forward);
}

// Sums over the targets, and the gradients of nll + z_loss_weight * z.
struct Accumulated {
  Value nll, z, count;
  Values grads;
  Values All() const {
    Values all = {nll, z, count};
    all.insert(all.end(), grads.begin(), grads.end());
    return all;
  }
  static Accumulated From(const Values& v) {
    return {v[0], v[1], v[2], Values(v.begin() + 3, v.end())};
  }
};

Accumulated OneMicrobatch(const Config& model, const StepOptions& options, const Values& weights,
                          const BatchValues& batch) {
  const nn::olmo3::LossSums sums = SumsOf(model, options, weights, batch);
  Values grads = graph::Grad(sums.nll + sums.z * options.z_loss_weight, weights);
  const std::vector<ParameterSpec> specs = nn::olmo3::Parameters(model);
  for (size_t i = 0; i < grads.size(); ++i) grads[i] = ShardAs(grads[i], specs[i].axes);
  return {sums.nll, sums.z, sums.count, std::move(grads)};
}

// batch: [M,b,T]
Accumulated Accumulate(const Config& model, const StepOptions& options, const Values& weights,
                       const BatchValues& batch) {
  Graph& g = batch.tokens.graph();
  if (options.num_microbatches == 1) {
    const Shape shape = {batch.tokens.dim(1), batch.tokens.dim(2)};
    Values flat = batch.All();
    for (Value& v : flat) v = ShardAs(Reshape(v, shape), {"batch", "seq"});
    return OneMicrobatch(model, options, weights, BatchValues::From(flat));
  }
  Values zeros(3, Splat(g, 0, kScalar));
  const std::vector<ParameterSpec> specs = nn::olmo3::Parameters(model);
  for (size_t i = 0; i < weights.size(); ++i)
    zeros.push_back(ShardAs(ZerosLike(weights[i]), specs[i].axes));
  const auto body = [&](Values carry, Values xs) {
    Values inner;
    for (const Value weight : weights) inner.push_back(g.current().Import(weight));
    const Values sums = OneMicrobatch(model, options, inner, BatchValues::From(xs)).All();
    for (size_t i = 0; i < carry.size(); ++i) carry[i] = carry[i] + sums[i];
    return graph::ScanStep{carry, {}};
  };
  graph::Scope scope(g, "microbatches");
  return Accumulated::From(graph::Scan(zeros, batch.All(), body).carry);
}

struct State {
  std::vector<optim::AdamWTensor> tensors;
  Value count;
};

State DeclareState(Graph& g, const Config& model, const StepOptions& options) {
  State state;
  for (const ParameterSpec& spec : nn::olmo3::Parameters(model)) {
    const Sharding sharding = g.ShardingFor(spec.axes, Loc::current());
    const TensorType moment{options.moments, spec.type.shape};
    state.tensors.push_back({g.Parameter(spec.name, spec.type, sharding),
                             g.Parameter("exp_avg." + spec.name, moment, sharding),
                             g.Parameter("exp_avg_sq." + spec.name, moment, sharding)});
  }
  state.count = g.Parameter("adam_count", kScalar);
  return state;
}

Value GradNorm(Graph& g, const Config& model, const StepOptions& options, const Values& sums,
               Value divisor) {
  if (options.grad_norm_sum == GradNormSum::kAnyOrder) return optim::GlobalNorm(g, sums) / divisor;
  Values grads;
  Dims layers;
  const std::vector<ParameterSpec> specs = nn::olmo3::Parameters(model);
  for (size_t i = 0; i < sums.size(); ++i) {
    grads.push_back(sums[i] / BroadcastTo(divisor, sums[i].shape()));
    layers.push_back(specs[i].stacked ? sums[i].dim(0) : 1);
  }
  return optim::TorchCpuGlobalNorm(g, grads, layers);
}

// Before clipping, one result per parameter, one element per layer of a stack.
void ReturnLayerNorms(Graph& g, const Config& model, const Values& grads, Value divisor) {
  const std::vector<ParameterSpec> specs = nn::olmo3::Parameters(model);
  for (size_t i = 0; i < specs.size(); ++i) {
    Dims axes;
    for (int64_t axis = specs[i].stacked ? 1 : 0; axis < grads[i].rank(); ++axis)
      axes.push_back(axis);
    const Value norm = Sqrt(ReduceSum(Square(grads[i]), axes));
    g.Result("grad_norm." + specs[i].name, norm / BroadcastTo(divisor, norm.shape()));
  }
}

void ReturnState(Graph& g, const Config& model, const State& before, const State& after) {
  const std::vector<ParameterSpec> specs = nn::olmo3::Parameters(model);
  for (size_t i = 0; i < specs.size(); ++i) {
    const Sharding sharding = g.ShardingFor(specs[i].axes, Loc::current());
    const optim::AdamWTensor &old = before.tensors[i], &next = after.tensors[i];
    g.Result(specs[i].name, next.weight, sharding, old.weight);
    g.Result("exp_avg." + specs[i].name, next.exp_avg, sharding, old.exp_avg);
    g.Result("exp_avg_sq." + specs[i].name, next.exp_avg_sq, sharding, old.exp_avg_sq);
  }
  g.Result("adam_count", after.count, {}, before.count);
}

}  // namespace

Status ValidateStep(const Config& model, const StepOptions& options, const Mesh& mesh,
                    const AxisRules& rules) {
  TRY(nn::olmo3::ValidateConfig(model));
  TRY(nn::olmo3::RematByName(options.forward.remat));
  TRY(RatesOf(model, options));
  const int64_t B = options.global_batch, M = options.num_microbatches, T = options.sequence_length;
  if (M < 1 || B < 1 || T < 2)
    return InvalidArgumentError(
        "global batch {} instances of {} tokens in {} microbatches: expected at least 1, 2 and 1",
        B, T, M);
  if (B % M != 0)
    return InvalidArgumentError(
        "global batch: {} instances % {} microbatches = {}; change one of them", B, M, B % M);
  if (options.grad_norm_sum == GradNormSum::kTorchCpu && mesh.num_devices() > 1)
    return InvalidArgumentError(
        "grad_norm_sum \"torch_cpu\" adds squares in the order of one device, the mesh has {}; "
        "take "
        "\"any_order\"",
        mesh.num_devices());
  return nn::olmo3::ValidateMesh(model, mesh, rules, B / M, T);
}

Result<Program> StepProgram(const Config& model, const StepOptions& options, const Mesh& mesh,
                            const AxisRules& rules, const graph::ProgramOptions& print) {
  TRY(ValidateStep(model, options, mesh, rules));
  const std::vector<optim::ParamRates> rates = TRY(RatesOf(model, options));
  Graph g("train_step", mesh, rules);
  const State state = DeclareState(g, model, options);
  const int64_t M = options.num_microbatches;
  const BatchValues batch =
      DeclareBatch(g, options, {M, options.global_batch / M, options.sequence_length});
  const Value added_count = g.Parameter("added_count", kScalar), lr = g.Parameter("lr", kScalar),
              loss_limit = g.Parameter("loss_limit", kScalar),
              grad_norm_limit = g.Parameter("grad_norm_limit", kScalar);

  Values weights;
  for (const optim::AdamWTensor& tensor : state.tensors) weights.push_back(tensor.weight);
  Accumulated sums = Accumulate(model, options, weights, batch);

  // One division for the whole global batch: a mean of means would weigh tokens unequally.
  const Value divisor = Max(sums.count + added_count, SplatLike(sums.count, 1));
  const Value loss = sums.nll / divisor, z_loss = sums.z * options.z_loss_weight / divisor;
  const Value grad_norm = GradNorm(g, model, options, sums.grads, divisor);
  const Value clip = optim::ClipFactor(grad_norm, options.max_grad_norm, options.clip);

  graph::Scope scope(g, "optimizer");
  const bool total = options.skip_metrics == SkipMetrics::kTotalLossAndClippedNorm;
  const Value within =
      optim::StepApplies(total ? loss + z_loss : loss, total ? grad_norm * clip : grad_norm,
                         loss_limit, grad_norm_limit);
  const Value has_targets = Compare(graph::Cmp::kGt, sums.count, ZerosLike(sums.count));
  const optim::AdamWStep step{lr, state.count, And(within, has_targets)};
  const Value scale = clip / divisor;
  State next;
  Values changes;
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    const Value grad = sums.grads[i] * BroadcastTo(scale, sums.grads[i].shape());
    next.tensors.push_back(optim::AdamWUpdate(state.tensors[i], grad, step, rates[i].weight_decay,
                                              rates[i].lr_factor, options.adamw));
    changes.push_back(next.tensors.back().weight - state.tensors[i].weight);
  }
  next.count = optim::NextCount(step, options.increment_count);

  g.Result("loss", loss);
  g.Result("z_loss", z_loss);
  g.Result("grad_norm", grad_norm);
  // The difference of weights that are not finite is not 0.
  g.Result("update_norm", Select(step.apply, optim::GlobalNorm(g, changes), SplatLike(loss, 0)));
  g.Result("count", sums.count);
  g.Result("applied", Convert(step.apply, DType::kF32));
  ReturnState(g, model, state, next);
  if (options.layer_norms) ReturnLayerNorms(g, model, sums.grads, divisor);
  return g.ToProgram(print);
}

Result<Program> EvalProgram(const Config& model, const StepOptions& options, const Mesh& mesh,
                            const AxisRules& rules, const graph::ProgramOptions& print) {
  TRY(nn::olmo3::ValidateConfig(model));
  TRY(nn::olmo3::RematByName(options.forward.remat));
  TRY(nn::olmo3::ValidateMesh(model, mesh, rules, options.global_batch, options.sequence_length));
  Graph g("eval", mesh, rules);
  const Values weights = nn::olmo3::DeclareParameters(g, model);
  const BatchValues batch =
      DeclareBatch(g, options, {options.global_batch, options.sequence_length});
  const nn::olmo3::LossSums sums = SumsOf(model, options, weights, batch);
  g.Result("nll", sums.nll);
  g.Result("count", sums.count);
  return g.ToProgram(print);
}

}  // namespace ulmus::train
