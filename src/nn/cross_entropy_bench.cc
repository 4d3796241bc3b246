// The head's loss and its gradients on CPUs: all logits at once, left to the compiler, and blocks
// of logits by size. Both answers are compared before anything is timed.
//   nn_bench --benchmark_filter=CrossEntropy
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/functions.h"
#include "nn/testing/cross_entropy_program.h"
#include "pjrt/client.h"
#include "pjrt/testing.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::Value;
using graph::Values;

// Logits [B,T,V] in f32, as one would first write it.
CrossEntropyResult AllLogits(Value x, Value head, Value labels) {
  const Value logits =
      DotGeneral(x, Convert(head, x.dtype()), {{}, {}, {2}, {1}}, {.result = DType::kF32});
  const Value lse = LogSumExp(logits);
  return {lse - TakeAlongLast(logits, labels), lse};
}

struct Form {
  std::string name;
  int64_t token_block = 0, vocab_block = 0;
};

struct Case {
  HeadShape shape;
  DType dtype;
  bool backward;
};

class Compiled {
 public:
  Compiled(const Case& c, const Form& form, const pjrt::PluginCandidate& plugin) {
    const auto& [B, T, D, V] = c.shape;
    Graph graph("head");
    const TensorType x_type{c.dtype, {B, T, D}}, head_type{DType::kF32, {V, D}},
        labels_type{DType::kI32, {B, T}};
    const Value x = graph.Parameter("x", x_type), head = graph.Parameter("head", head_type),
                labels = graph.Parameter("labels", labels_type);
    const CrossEntropyResult r =
        form.name == "all_logits"
            ? AllLogits(x, head, labels)
            : CrossEntropy(x, head, labels,
                           {.token_block = form.token_block, .vocab_block = form.vocab_block});
    graph.Result("nll", r.nll);
    if (c.backward) {
      const Value loss = ReduceSum(r.nll + Square(r.logsumexp) * 1e-5, {0, 1});
      const Values grads = Grad(loss, {x, head});
      graph.Result("dx", grads[0]);
      graph.Result("dhead", grads[1]);
    }
    const Result<pjrt::Client*> client = pjrt::SharedClient(plugin);
    CHECK(client.ok(), "{}", client.status().ToString());
    auto executable = (*client)->Compile(graph.ToProgram());
    CHECK(executable.ok(), "{}", executable.status().ToString());
    executable_ = std::move(*executable);
    graph::RefTensor ids = graph::RefTensor::Zeros(labels_type);
    for (size_t i = 0; i < ids.data.size(); ++i)
      ids.data[i] = static_cast<double>((static_cast<int64_t>(i) * 7919) % V);
    for (const graph::RefTensor& input : {Noise(x_type, 1), Noise(head_type, 2), ids}) {
      arrays_.push_back(std::move(*pjrt::ShardedArray::FromHost(
          **client, input.ToHost(), Mesh(), Sharding::Replicated(input.type.shape.rank()))));
    }
    for (pjrt::ShardedArray& array : arrays_) args_.push_back(&array);
  }

  std::vector<pjrt::ShardedArray> Run() {
    Result<std::vector<pjrt::ShardedArray>> results = executable_->Execute(args_);
    CHECK(results.ok() && executable_->Wait().ok());
    return std::move(*results);
  }

  int64_t temp_bytes() const { return executable_->memory_stats().temp_bytes; }

 private:
  std::unique_ptr<pjrt::Executable> executable_;
  std::vector<pjrt::ShardedArray> arrays_;
  std::vector<pjrt::ShardedArray*> args_;
};

// On a smaller shape: both forms use the same code for any.
void CheckAnswers(const Case& c, const Form& form, const pjrt::PluginCandidate& plugin) {
  Case small = c;
  small.shape.T = 100;
  small.shape.V = 3000;
  const auto want = Compiled(small, {"all_logits"}, plugin).Run(),
             got = Compiled(small, form, plugin).Run();
  for (size_t r = 0; r < want.size(); ++r) {
    const HostTensor a = *want[r].ToHost(), b = *got[r].ToHost();
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      largest = std::max(largest, std::fabs(a.Get(i)));
      worst = std::max(worst, std::fabs(a.Get(i) - b.Get(i)));
    }
    CHECK(worst <= (c.dtype == DType::kF32 ? 1e-5 : 2e-2) * largest,
          "result {} differs by {} of {}", r, worst, largest);
  }
}

void Run(benchmark::State& state, const Case& c, const Form& form,
         const pjrt::PluginCandidate& plugin) {
  CheckAnswers(c, form, plugin);
  Compiled program(c, form, plugin);
  program.Run();
  for (auto _ : state) program.Run();
  state.counters["temp_MB"] = static_cast<double>(program.temp_bytes()) / 1e6;
}

[[maybe_unused]] const bool kRegistered = [] {
  std::vector<Form> forms{{"all_logits"}, {"blockwise"}};
  for (const auto& [tokens, rows] : {std::pair<int64_t, int64_t>{256, 1024},
                                     {512, 512},
                                     {1024, 1024},
                                     {2048, 512},
                                     {2048, 2048}})
    forms.push_back({fmt::format("blockwise_{}x{}", tokens, rows), tokens, rows});
  for (const pjrt::PluginCandidate& plugin : pjrt::InstalledCpuPlugins()) {
    for (const bool backward : {false, true}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        const Case c{{.B = 1, .T = 2048, .D = 256, .V = 32768}, dtype, backward};
        for (const Form& form : forms) {
          const std::string name =
              fmt::format("CrossEntropy/{}/{}/{}/{}", backward ? "backward" : "forward",
                          Name(dtype), form.name, plugin.name);
          benchmark::RegisterBenchmark(name.c_str(), Run, c, form, plugin)
              ->UseRealTime()
              ->MeasureProcessCPUTime()
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace ulmus::nn
