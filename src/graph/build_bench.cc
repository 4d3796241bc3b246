// How long a training-step graph of transformer size takes to build, differentiate and print.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::graph {
namespace {

// An OLMo-like 7B step: B=4 T=2048 D=4096 N=32 H=128 F=11008 V=100352, L layers scanned in groups
// of four.
constexpr int64_t B = 4, T = 2048, D = 4096, N = 32, H = 128, F = 11008, V = 100352, kGroup = 4;

Value Norm(Value x, Value gain) {
  const Value wide = Convert(x, DType::kF32);
  Dims lead;
  for (int64_t d = 0; d + 1 < x.rank(); ++d) lead.push_back(d);
  const Value scale = BroadcastInDim(Rsqrt(Mean(Square(wide), {-1}) + 1e-6), x.shape(), lead);
  return Convert(wide * scale * BroadcastTo(gain, x.shape()), x.dtype());
}

struct LayerWeights {
  Value q, k, v, o, q_norm, k_norm, gate, up, down, attention_norm, mlp_norm;
};

Value Attention(Value x, const LayerWeights& w) {
  const auto heads = [](Value y) {
    return Transpose(Reshape(y, {B, T, N, H}), {0, 2, 1, 3});
  };  // [B,N,T,H]
  const Value q = heads(Norm(Dot(x, w.q), w.q_norm)), k = heads(Norm(Dot(x, w.k), w.k_norm)),
              v = heads(Dot(x, w.v));
  const Value scores = DotGeneral(q, k, {{0, 1}, {0, 1}, {3}, {3}}, {}) *
                       (1 / std::sqrt(double{H}));  // [B,N,T,T] f32
  const Value rows = Iota(x.graph(), {DType::kI32, {T, T}}, 0),
              columns = Iota(x.graph(), {DType::kI32, {T, T}}, 1);
  const Value visible = BroadcastTo(Compare(Cmp::kGe, rows, columns), scores.shape());
  const Value p = Convert(Softmax(Select(visible, scores, SplatLike(scores, -1e30))), x.dtype());
  const Value mixed =
      Convert(DotGeneral(p, v, {{0, 1}, {0, 1}, {3}, {2}}, {}), x.dtype());  // [B,N,T,H]
  return Dot(Reshape(Transpose(mixed, {0, 2, 1, 3}), {B, T, N * H}), w.o);
}

Value Layer(Value x, const LayerWeights& w) {
  x = ShardAs(x + Norm(Attention(x, w), w.attention_norm), {"batch", "", ""});
  const Value mlp = Dot(Silu(Dot(x, w.gate)) * Dot(x, w.up), w.down);
  return ShardAs(x + Norm(mlp, w.mlp_norm), {"batch", "", ""});
}

Program BuildStep(int64_t num_layers) {
  Graph g("step", Mesh({{"data", 1}, {"fsdp", 4}, {"tensor", 2}}),
          {{"batch", {"data", "fsdp"}}, {"embed", {"fsdp"}}, {"mlp", {"tensor"}}});
  const Loc here = Loc::current();
  struct Weight {
    Value value, exp_avg, exp_avg_sq;
    Sharding sharding;
  };
  std::vector<Weight> weights;
  Values stacked;
  const auto add = [&](const std::string& name, Shape shape, std::vector<std::string> axes) {
    const Sharding sharding = g.ShardingFor(axes, here);
    const TensorType type{DType::kF32, std::move(shape)};
    weights.push_back({g.Parameter(name, type, sharding),
                       g.Parameter("exp_avg." + name, type, sharding),
                       g.Parameter("exp_avg_sq." + name, type, sharding), sharding});
    return weights.back().value;
  };
  const auto layer_weight = [&](const std::string& name, Dims dims, std::vector<std::string> axes) {
    dims.insert(dims.begin(), {num_layers / kGroup, kGroup});
    axes.insert(axes.begin(), {"", ""});
    stacked.push_back(add(name, Shape(dims), axes));
  };
  for (const char* name : {"q", "k", "v", "o"}) layer_weight(name, {D, D}, {"embed", "mlp"});
  for (const char* name : {"q_norm", "k_norm"}) layer_weight(name, {D}, {""});
  for (const char* name : {"gate", "up"}) layer_weight(name, {D, F}, {"embed", "mlp"});
  layer_weight("down", {F, D}, {"mlp", "embed"});
  for (const char* name : {"attention_norm", "mlp_norm"}) layer_weight(name, {D}, {""});
  const Value embed = add("embed", {V, D}, {"", "embed"}),
              final_norm = add("final_norm", {D}, {""}),
              head = add("head", {D, V}, {"embed", "mlp"});
  const Value tokens = g.Parameter("tokens", {DType::kI32, {B, T}}),
              labels = g.Parameter("labels", {DType::kI32, {B, T}});

  Value x = Convert(Take(embed, tokens), DType::kBF16);
  x = Scan({x}, stacked, [](Values carry, Values group) {
        Values in = {carry[0]};
        in.insert(in.end(), group.begin(), group.end());
        return ScanStep{
            Remat(in,
                  [](Values v) {
                    Value y = v[0];
                    for (int64_t c = 0; c < kGroup; ++c) {  // layer c of the group
                      Values w;
                      for (size_t i = 1; i < v.size(); ++i) {
                        Dims starts(static_cast<size_t>(v[i].rank()), 0),
                            limits = v[i].shape().dims();
                        starts[0] = c, limits[0] = c + 1;
                        const Dims shape(limits.begin() + 1, limits.end());
                        const Value layer = Reshape(Slice(v[i], starts, limits), Shape(shape));
                        w.push_back(shape.size() > 1 ? Convert(layer, DType::kBF16) : layer);
                      }
                      y = Layer(
                          y, {w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10]});
                    }
                    return Values{y};
                  }),
            {}};
      }).carry[0];
  const Value logits = Convert(Dot(Norm(x, final_norm), Convert(head, DType::kBF16)), DType::kF32);
  const Value loss = Mean(LogSumExp(logits) - TakeAlongLast(logits, labels), {0, 1});
  Values wrt;
  for (const Weight& w : weights) wrt.push_back(w.value);
  const Values grads = Grad(loss, wrt);
  g.Result("loss", loss);
  for (size_t i = 0; i < weights.size(); ++i) {
    const Weight& w = weights[i];
    const Value m = w.exp_avg * 0.9 + grads[i] * 0.1,
                v = w.exp_avg_sq * 0.95 + Square(grads[i]) * 0.05;
    g.Result("w", w.value - m / (Sqrt(v) + 1e-8) * 3e-4, w.sharding, w.value);
    g.Result("m", m, w.sharding, w.exp_avg);
    g.Result("v", v, w.sharding, w.exp_avg_sq);
  }
  return g.ToProgram();
}

void BuildAndPrint(benchmark::State& state) {
  const Program first = BuildStep(state.range(0));
  if (first.text != BuildStep(state.range(0)).text || first.arguments.size() != 44) {
    state.SkipWithError("the program is not what it should be");
    return;
  }
  size_t lines = 0;
  for (auto _ : state) {
    const Program program = BuildStep(state.range(0));
    benchmark::DoNotOptimize(program.text.data());
    lines = static_cast<size_t>(std::count(program.text.begin(), program.text.end(), '\n'));
  }
  state.counters["lines"] = static_cast<double>(lines);
}
BENCHMARK(BuildAndPrint)->Arg(32)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ulmus::graph
