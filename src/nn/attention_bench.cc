// Attention and its gradients on CPUs: one dense softmax over [T,T] left to the compiler, and the
// blockwise form by size of block. Answers are compared before anything is timed: the dense form
// with the twin in double, the blockwise form with the dense one.
//   nn_bench --benchmark_filter=Attention
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/functions.h"
#include "nn/testing/attention_program.h"
#include "pjrt/client.h"
#include "pjrt/testing.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::Value;
using graph::Values;

// softmax(mask(q k^T / sqrt(H))) v as one would first write it; the first query stands at key
// `offset`.
Value DenseRows(Value q, Value k, Value v, int64_t offset, int64_t window) {
  Graph& graph = q.graph();
  const int64_t B = q.dim(0), T = q.dim(1), N = q.dim(2), K = k.dim(2), H = q.dim(3);
  const Value grouped = Transpose(Reshape(q, {B, T, K, N / K, H}), {0, 2, 3, 1, 4});
  const Value scores = DotGeneral(grouped, k, {{0, 1}, {0, 2}, {4}, {3}}, {}) *
                       (1 / std::sqrt(static_cast<double>(H)));
  const TensorType pairs{DType::kI32, {T, k.dim(1)}};
  const Value distance =
      Iota(graph, pairs, 0) - Iota(graph, pairs, 1) + static_cast<double>(offset);
  const Value meets =
      And(Compare(graph::Cmp::kGe, distance, ZerosLike(distance)),
          Compare(graph::Cmp::kLt, distance, SplatLike(distance, static_cast<double>(window))));
  const Value masked = Select(BroadcastTo(meets, scores.shape()), scores, SplatLike(scores, -1e30));
  const Value p = Convert(Softmax(masked), q.dtype());
  const Value out = DotGeneral(p, v, {{0, 1}, {0, 2}, {4}, {1}}, {});  // [B,K,G,T,H]
  return Convert(Reshape(Transpose(out, {0, 3, 1, 2, 4}), {B, T, N, H}), q.dtype());
}

Value DenseAttention(Value q, Value k, Value v, const AttentionOptions& options) {
  return DenseRows(q, k, v, 0, options.window > 0 ? options.window : q.dim(1));
}

// One query block after the other written out, each with one softmax over the keys it reaches.
Value UnrolledAttention(Value q, Value k, Value v, const AttentionOptions& options) {
  const int64_t T = q.dim(1), block = options.block;
  const int64_t window = options.window > 0 ? options.window : T;
  Values parts;
  for (int64_t i = 0; i < T; i += block) {
    const int64_t last = std::min(i + block, T),
                  first = std::max<int64_t>(0, i + 1 - window) / block * block;
    const auto rows = [](Value x, int64_t low, int64_t high) {
      return Slice(x, {0, low, 0, 0}, {x.dim(0), high, x.dim(2), x.dim(3)});
    };
    parts.push_back(
        DenseRows(rows(q, i, last), rows(k, first, last), rows(v, first, last), i - first, window));
  }
  return Concatenate(parts, 1);
}

struct Form {
  std::string name;
  std::function<Value(Value, Value, Value, const AttentionOptions&)> attention;
  int64_t block = 0;
};

struct Case {
  AttentionShape shape;
  DType dtype = DType::kF32;
  bool backward = false;
};

class Compiled {
 public:
  Compiled(const Case& c, const Form& form, const pjrt::PluginCandidate& plugin) {
    const auto& [B, T, N, K, H, window, segments, scale] = c.shape;
    Graph graph("attention");
    const TensorType queries{c.dtype, {B, T, N, H}}, keys{c.dtype, {B, T, K, H}};
    const Value q = graph.Parameter("q", queries), k = graph.Parameter("k", keys),
                v = graph.Parameter("v", keys), ct = graph.Parameter("ct", queries);
    const Value out = form.attention(q, k, v, {.window = window, .block = form.block});
    graph.Result("out", out);
    if (c.backward) {
      const Values grads = Grad(SumOfProducts(out, ct), {q, k, v});
      for (size_t i = 0; i < 3; ++i) graph.Result(fmt::format("grad{}", i), grads[i]);
    }
    const Result<pjrt::Client*> client = pjrt::SharedClient(plugin);
    CHECK(client.ok(), "{}", client.status().ToString());
    auto executable = (*client)->Compile(graph.ToProgram());
    CHECK(executable.ok(), "{}", executable.status().ToString());
    executable_ = std::move(*executable);
    for (const auto& [type, seed] : {std::pair{queries, 1}, {keys, 2}, {keys, 3}, {queries, 4}}) {
      const HostTensor host = Noise(type, seed).ToHost();
      arrays_.push_back(std::move(
          *pjrt::ShardedArray::FromHost(**client, host, Mesh(), Sharding::Replicated(4))));
    }
    for (pjrt::ShardedArray& array : arrays_) args_.push_back(&array);
  }

  std::vector<pjrt::ShardedArray> Run() {
    Result<std::vector<pjrt::ShardedArray>> results = executable_->Execute(args_);
    CHECK(results.ok() && executable_->Wait().ok());
    return std::move(*results);
  }

  std::vector<HostTensor> Answer() {
    std::vector<HostTensor> answer;
    for (const pjrt::ShardedArray& result : Run()) answer.push_back(std::move(*result.ToHost()));
    return answer;
  }

  int64_t temp_bytes() const { return executable_->memory_stats().temp_bytes; }

 private:
  std::unique_ptr<pjrt::Executable> executable_;
  std::vector<pjrt::ShardedArray> arrays_;
  std::vector<pjrt::ShardedArray*> args_;
};

void CheckEqual(const HostTensor& got, const std::function<double(int64_t)>& want,
                double tolerance) {
  double largest = 0, worst = 0;
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    largest = std::max(largest, std::fabs(want(i)));
    worst = std::max(worst, std::fabs(got.Get(i) - want(i)));
  }
  CHECK(worst <= tolerance * largest, "differs by {} of {}", worst, largest);
}

const Form kDense{"dense", DenseAttention};

void CheckDense(const Case& c, const pjrt::PluginCandidate& plugin) {
  Case small = c;
  small.shape.T = 96;
  small.shape.window = std::min<int64_t>(c.shape.window, 32);
  AttentionProgram twin(small.shape, c.dtype);
  const std::vector<HostTensor> got = Compiled(small, kDense, plugin).Answer();
  twin.inputs[0] = Noise(twin.inputs[0].type, 1), twin.inputs[1] = Noise(twin.inputs[1].type, 2);
  const auto want = twin.Reference();
  for (size_t r = 0; r < got.size(); ++r)
    CheckEqual(
        got[r], [&](int64_t i) { return want[r][static_cast<size_t>(i)]; },
        c.dtype == DType::kF32 ? 1e-5 : 2e-2);
}

void Run(benchmark::State& state, const Case& c, const Form& form,
         const pjrt::PluginCandidate& plugin) {
  Compiled program(c, form, plugin);
  if (form.name == "dense") {
    CheckDense(c, plugin);
  } else {
    const std::vector<HostTensor> want = Compiled(c, kDense, plugin).Answer(),
                                  got = program.Answer();
    for (size_t r = 0; r < got.size(); ++r)
      CheckEqual(
          got[r], [&](int64_t i) { return want[r].Get(i); }, c.dtype == DType::kF32 ? 1e-5 : 2e-2);
  }
  for (auto _ : state) program.Run();
  state.counters["temp_MB"] = static_cast<double>(program.temp_bytes()) / 1e6;
}

[[maybe_unused]] const bool kRegistered = [] {
  std::vector<Form> forms{
      kDense, {"unrolled_128", UnrolledAttention, 128}, {"unrolled_256", UnrolledAttention, 256}};
  for (const int64_t block : {0, 64, 128, 256, 512}) {
    forms.push_back({block == 0 ? "blockwise" : fmt::format("blockwise_{}", block),
                     [](Value q, Value k, Value v, const AttentionOptions& options) {
                       return Attention(q, k, v, options);
                     },
                     block});
  }
  for (const pjrt::PluginCandidate& plugin : pjrt::InstalledCpuPlugins()) {
    for (const bool backward : {false, true}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const auto& [T, N, window] :
             {std::array<int64_t, 3>{1024, 4, 0}, {4096, 4, 0}, {4096, 4, 256}, {2048, 16, 0}}) {
          const Case c{
              {.B = 1, .T = T, .N = N, .K = N / 2, .H = 64, .window = window}, dtype, backward};
          for (const Form& form : forms) {
            const std::string name = fmt::format("Attention/{}/{}/T{}/N{}/window{}/{}/{}",
                                                 backward ? "backward" : "forward", Name(dtype), T,
                                                 N, window, form.name, plugin.name);
            benchmark::RegisterBenchmark(name.c_str(), Run, c, form, plugin)
                ->UseRealTime()
                ->MeasureProcessCPUTime()
                ->Unit(benchmark::kMillisecond);
          }
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace ulmus::nn
