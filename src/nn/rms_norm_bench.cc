// RMSNorm and its gradient on CPUs: plain loops, the kernel alone, and compiled programs with XLA's
// own code and with the kernel. Every answer is compared with the twin in double before it is
// timed.
//   nn_bench --benchmark_enable_random_interleaving=true --benchmark_repetitions=5
//   --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <malloc.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/autodiff.h"
#include "graph/ops.h"
#include "kernels/rms_norm.h"
#include "kernels/table.h"
#include "kernels/testing/rms_norm_reference.h"
#include "nn/rms_norm.h"
#include "nn/testing/norm_program.h"
#include "pjrt/client.h"
#include "pjrt/testing.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::Value;

// Inputs, and what comes out: y, or dx and dscale.
struct Case {
  TensorType type, scale_type;
  bool backward;
  HostTensor x, scale, ct;
  std::vector<std::vector<double>> want;

  Case(DType dtype, int64_t rows, int64_t width, bool gradient)
      : type{dtype, {rows, width}},
        scale_type{DType::kF32, {width}},
        backward(gradient),
        x(Waves(type, 0).ToHost()),
        scale(Waves(scale_type, 1).ToHost()),
        ct(Waves(type, 2).ToHost()) {
    const std::vector<double> xs = Waves(type, 0).data, scales = Waves(scale_type, 1).data;
    if (!backward) {
      want = {kernels::RmsNormReference(xs, scales, static_cast<double>(kEps))};
      return;
    }
    kernels::RmsNormGradients gradients = kernels::RmsNormBackwardReference(
        xs, scales, Waves(type, 2).data, static_cast<double>(kEps));
    want = {std::move(gradients.dx), std::move(gradients.dscale)};
  }

  // Against the twin: one rounding of bf16; dscale adds up the rows, one rounding of f32 (2^-24)
  // each in the plain loops.
  void Check(const std::vector<HostTensor>& got) const {
    CHECK(got.size() == want.size());
    for (size_t r = 0; r < got.size(); ++r) {
      const double rows = static_cast<double>(type.shape.dim(0));
      const double rounding = r == 1                           ? std::ldexp(rows, -24)
                              : got[r].dtype() == DType::kBF16 ? 1.0 / 256
                                                               : 0;
      const double sums = r == 1 ? 2e-6 * rows : 2e-5;
      for (size_t i = 0; i < want[r].size(); ++i) {
        const double value = got[r].Get(static_cast<int64_t>(i));
        CHECK(std::fabs(value - want[r][i]) <= rounding * std::fabs(want[r][i]) + sums,
              "result {} element {} is {}, expected {}", r, i, value, want[r][i]);
      }
    }
  }

  // Read and written once, if nothing had to be read twice.
  int64_t Bytes() const { return type.size_bytes() * (backward ? 3 : 2); }
  std::vector<HostTensor> Results() const {
    std::vector<HostTensor> results;
    results.emplace_back(type);
    if (backward) results.emplace_back(scale_type);
    return results;
  }
};

// The formula as one would first write it, in f32.
template <class T>
void PlainLoops(std::span<const T> x, std::span<const float> scale, std::span<T> y) {
  const size_t width = scale.size();
  for (size_t first = 0; first < x.size(); first += width) {
    float squares = 0;
    for (size_t d = 0; d < width; ++d)
      squares += static_cast<float>(x[first + d]) * static_cast<float>(x[first + d]);
    const float r = 1 / std::sqrt(squares / static_cast<float>(width) + kEps);
    for (size_t d = 0; d < width; ++d)
      y[first + d] = static_cast<T>(static_cast<float>(x[first + d]) * r * scale[d]);
  }
}

template <class T>
void PlainLoopsBackward(std::span<const T> x, std::span<const float> scale, std::span<const T> ct,
                        std::span<T> dx, std::span<float> dscale) {
  const size_t width = scale.size();
  std::fill(dscale.begin(), dscale.end(), 0.0f);
  const auto at = [](std::span<const T> v, size_t i) { return static_cast<float>(v[i]); };
  for (size_t first = 0; first < x.size(); first += width) {
    float squares = 0, products = 0;
    for (size_t d = 0; d < width; ++d) {
      squares += at(x, first + d) * at(x, first + d);
      products += at(ct, first + d) * scale[d] * at(x, first + d);
    }
    const float r = 1 / std::sqrt(squares / static_cast<float>(width) + kEps),
                mean = products * r / static_cast<float>(width);
    for (size_t d = 0; d < width; ++d) {
      const float n = at(x, first + d) * r;
      dscale[d] += at(ct, first + d) * n;
      dx[first + d] = static_cast<T>(r * (at(ct, first + d) * scale[d] - n * mean));
    }
  }
}

void Time(benchmark::State& state, const Case& c, const std::function<void()>& run) {
  for (auto _ : state) run();
  state.SetBytesProcessed(state.iterations() * c.Bytes());
}

template <class T>
void Functions(benchmark::State& state, const Case& c, bool plain) {
  std::vector<HostTensor> results = c.Results();
  kernels::CallerOnly caller;
  const auto run = [&] {
    const std::span<const T> x = c.x.values<T>(), ct = c.ct.values<T>();
    const std::span<const float> scale = c.scale.values<float>();
    if (!c.backward) {
      plain ? PlainLoops<T>(x, scale, results[0].values<T>())
            : kernels::RmsNorm(caller, x, scale, kEps, results[0].values<T>());
    } else if (plain) {
      PlainLoopsBackward<T>(x, scale, ct, results[0].values<T>(), results[1].values<float>());
    } else {
      kernels::RmsNormBackward(caller, x, scale, ct, kEps, results[0].values<T>(),
                               results[1].values<float>());
    }
    benchmark::ClobberMemory();
  };
  run();
  c.Check(results);
  Time(state, c, run);
}

std::unique_ptr<Graph> ProgramOf(const Case& c) {
  auto graph = std::make_unique<Graph>("rms_norm");
  const Value x = graph->Parameter("x", c.type), scale = graph->Parameter("scale", c.scale_type),
              ct = graph->Parameter("ct", c.type);
  const Value y = RmsNorm(x, scale, kEps);
  if (!c.backward) {
    graph->Result("y", y);
    return graph;
  }
  const Value loss = ReduceSum(Convert(y, DType::kF32) * Convert(ct, DType::kF32), {0, 1});
  const graph::Values grads = Grad(loss, {x, scale});
  graph->Result("dx", grads[0]);
  graph->Result("dscale", grads[1]);
  return graph;
}

void Compiled(benchmark::State& state, const Case& c, const pjrt::PluginCandidate& plugin,
              bool use_kernels) {
  const Result<pjrt::Client*> client = pjrt::SharedClient(plugin);
  CHECK(client.ok(), "{}", client.status().ToString());
  const Status registered = pjrt::RegisterCustomCalls((*client)->plugin(), kernels::AllKernels());
  CHECK(registered.ok(), "{}", registered.ToString());
  const auto executable =
      (*client)->Compile(ProgramOf(c)->ToProgram({.platform = "cpu", .use_kernels = use_kernels}));
  CHECK(executable.ok(), "{}", executable.status().ToString());
  std::vector<pjrt::ShardedArray> arrays;
  std::vector<pjrt::ShardedArray*> args;
  for (const HostTensor* tensor : {&c.x, &c.scale, &c.ct}) {
    arrays.push_back(std::move(*pjrt::ShardedArray::FromHost(
        **client, *tensor, Mesh(), Sharding::Replicated(tensor->shape().rank()))));
  }
  for (pjrt::ShardedArray& array : arrays) args.push_back(&array);
  const auto run = [&] {
    Result<std::vector<pjrt::ShardedArray>> results = (*executable)->Execute(args);
    CHECK(results.ok() && (*executable)->Wait().ok());
    return std::move(*results);
  };
  std::vector<HostTensor> results;
  for (const pjrt::ShardedArray& result : run()) results.push_back(std::move(*result.ToHost()));
  c.Check(results);
  Time(state, c, run);
}

void Run(benchmark::State& state, const std::string& what, DType dtype, int64_t rows, int64_t width,
         bool backward) {
  const Case c(dtype, rows, width, backward);
  if (what == "plain_loops" || what == "kernel_1_thread") {
    const bool plain = what == "plain_loops";
    return dtype == DType::kF32 ? Functions<float>(state, c, plain)
                                : Functions<BF16>(state, c, plain);
  }
  for (const pjrt::PluginCandidate& plugin : pjrt::InstalledCpuPlugins()) {
    if (what == "xla/" + plugin.name) return Compiled(state, c, plugin, false);
    if (what == "xla_with_kernel/" + plugin.name) return Compiled(state, c, plugin, true);
  }
}

[[maybe_unused]] const bool kRegistered = [] {
  // Large results would be fetched from the system page by page at every run, which temporaries
  // inside a step are not.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  std::vector<std::string> contestants{"plain_loops", "kernel_1_thread"};
  for (const pjrt::PluginCandidate& plugin : pjrt::InstalledCpuPlugins()) {
    contestants.insert(contestants.end(), {"xla/" + plugin.name, "xla_with_kernel/" + plugin.name});
  }
  for (const bool backward : {false, true}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{2048, 4096}, {512, 256}}) {
        for (const std::string& what : contestants) {
          const std::string name =
              fmt::format("RmsNorm/{}/{}/{}x{}/{}", backward ? "backward" : "forward", Name(dtype),
                          rows, width, what);
          benchmark::RegisterBenchmark(name.c_str(), Run, what, dtype, rows, width, backward)
              ->UseRealTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace ulmus::nn
