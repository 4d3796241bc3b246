// Attention compiled, on every CPU plugin: against the dense twin in double.
#include "nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/testing/attention_program.h"
#include "nn/testing/run_graph_testing.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;

constexpr const char* kResults[] = {"out", "dq", "dk", "dv"};

std::vector<HostTensor> Results(const pjrt::PluginCandidate& plugin, const Graph& graph,
                                const std::vector<RefTensor>& inputs) {
  return RunProgram(ClientFor(plugin, graph), graph.ToProgram(), inputs);
}

// Largest difference as a share of the tensor's largest magnitude. A query that reads one key has
// score gradients of 0: then the difference itself.
double WorstError(const HostTensor& got, const std::vector<double>& want) {
  double largest = 0, worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(got.Get(static_cast<int64_t>(i)) - want[i]);
    worst = error <= worst ? worst : error;  // NaN stays
    largest = std::max(largest, std::fabs(want[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

class AttentionPlugin : public testing::TestWithParam<pjrt::PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed; run `make setup`";
  }

  static void ExpectEqualsTheTwin(const AttentionShape& shape, DType dtype,
                                  const AttentionOptions& options, const Mesh& mesh = {}) {
    AttentionProgram program(shape, dtype, options, mesh);
    const auto got = Results(GetParam(), program.graph, program.inputs);
    const auto want = program.Reference();
    for (size_t r = 0; r < want.size(); ++r) {
      // f32: sums of T rounded terms. bf16: probabilities and score gradients are rounded to 2^-9.
      EXPECT_LE(WorstError(got[r], want[r]), dtype == DType::kF32 ? 2e-6 : 1.5e-2)
          << kResults[r] << " " << Name(dtype) << " T=" << shape.T << " N=" << shape.N
          << " K=" << shape.K << " window=" << shape.window << " block=" << options.block;
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Plugins, AttentionPlugin, testing::ValuesIn(pjrt::KnownCpuPlugins()),
                         [](const auto& plugin) { return pjrt::TestName(plugin.param); });

// Groups, a window, documents (of one token at both ends), a length that is no number of blocks.
AttentionShape Everything() {
  AttentionShape shape{.B = 2, .T = 75, .N = 6, .K = 2, .H = 16, .window = 21};
  for (int64_t t = 0; t < 2 * 75; ++t)
    shape.segments.push_back(t == 0 || t == 74 || t == 149 ? t : t / 40);
  return shape;
}

TEST_P(AttentionPlugin, EqualsTheDenseTwin) {
  ExpectEqualsTheTwin(Everything(), DType::kF32, {.block = 16});
  ExpectEqualsTheTwin(Everything(), DType::kBF16, {.block = 16});
}

// Scores of 0 and one-hot values: a result is not 0 where its query reads the key. Sequences whole,
// and cut over four devices: there keys come from all, or from the neighbours in reach.
TEST_P(AttentionPlugin, AQueryReadsItselfAndTheKeysOfItsWindow) {
  struct Reach {
    int64_t T, window, block, devices;
  };
  for (const auto& [T, window, block, devices] :
       {Reach{12, 4, 0, 1}, Reach{12, 4, 4, 1}, Reach{12, 4, 5, 1}, Reach{12, 1, 3, 1},
        Reach{300, 128, 0, 1}, Reach{12, 3, 0, 4}, Reach{12, 4, 2, 4}, Reach{12, 8, 0, 4}}) {
    const Mesh mesh = devices == 1 ? Mesh() : Mesh({{"context", devices}});
    Graph graph("one_hot", mesh);
    const TensorType type{DType::kF32, {1, T, 1, T}};
    const Value q = graph.Parameter("q", type), v = graph.Parameter("v", type);
    AttentionOptions options{.window = window, .block = block};
    if (devices > 1) options.sharding = Sharding{{{}, {"context"}, {}, {}}};
    graph.Result("out", Attention(q, q, v, options));
    RefTensor one_hot = RefTensor::Zeros(type);
    for (int64_t t = 0; t < T; ++t) one_hot.data[static_cast<size_t>(t * T + t)] = 1;
    const std::vector<HostTensor> results =
        Results(GetParam(), graph, {RefTensor::Zeros(type), one_hot});
    for (int64_t i = 0; i < T; ++i) {
      for (int64_t j = 0; j < T; ++j)
        EXPECT_EQ(results[0].Get(i * T + j) != 0, j <= i && i - j < window)
            << "query " << i << ", key " << j << ", window " << window << ", block " << block
            << ", devices " << devices;
    }
  }
}

// ---- numbers that any plugin may compute: on the default one ----

std::vector<HostTensor> Results(const Graph& graph, const std::vector<RefTensor>& inputs) {
  const std::vector<pjrt::PluginCandidate> plugins = pjrt::InstalledCpuPlugins();
  CHECK(!plugins.empty());
  return Results(plugins[0], graph, inputs);
}

class AttentionCompiled : public testing::Test {
 protected:
  void SetUp() override {
    if (pjrt::InstalledCpuPlugins().empty()) GTEST_SKIP() << "no CPU plugin; run `make setup`";
  }
};

TEST_F(AttentionCompiled, EqualsTheDenseTwinOverAGrid) {
  const auto expect = [](AttentionShape shape, DType dtype, int64_t block) {
    AttentionProgram program(shape, dtype, {.block = block});
    const auto got = Results(program.graph, program.inputs);
    const auto want = program.Reference();
    for (size_t r = 0; r < want.size(); ++r)
      EXPECT_LE(WorstError(got[r], want[r]), dtype == DType::kF32 ? 2e-6 : 1.5e-2)
          << kResults[r] << " " << Name(dtype) << " T=" << shape.T << " N=" << shape.N
          << " K=" << shape.K << " window=" << shape.window << " block=" << block;
  };
  expect({.B = 2, .T = 1, .N = 2, .K = 1, .H = 8}, DType::kF32, 0);
  expect({.B = 1, .T = 257, .N = 2, .K = 2, .H = 32}, DType::kF32, 0);
  expect({.B = 1, .T = 257, .N = 2, .K = 2, .H = 32}, DType::kBF16, 0);
  expect({.B = 1, .T = 200, .N = 5, .K = 1, .H = 8, .window = 1}, DType::kF32, 0);
  expect({.B = 1, .T = 200, .N = 4, .K = 4, .H = 8, .window = 150}, DType::kF32, 32);
  expect({.B = 3, .T = 40, .N = 2, .K = 1, .H = 8, .window = 40}, DType::kF32, 16);
}

TEST_F(AttentionCompiled, TwoRunsGiveTheSameBits) {
  AttentionProgram program(Everything(), DType::kF32, {.block = 16});
  const auto first = Results(program.graph, program.inputs),
             second = Results(program.graph, program.inputs);
  for (size_t r = 0; r < first.size(); ++r)
    EXPECT_TRUE(std::ranges::equal(first[r].bytes(), second[r].bytes())) << kResults[r];
}

TEST_F(AttentionCompiled, OnAMeshEqualsOneDevice) {
  AttentionShape shape{.B = 4, .T = 72, .N = 4, .K = 2, .H = 16, .window = 30};
  for (int64_t t = 0; t < shape.B * shape.T; ++t) shape.segments.push_back(t / 50);
  AttentionProgram one(shape, DType::kF32, {.block = 16});
  const auto want = Results(one.graph, one.inputs);
  const Mesh fsdp_tensor({{"fsdp", 4}, {"tensor", 2}}), context({{"context", 4}}),
      three({{"data", 2}, {"tensor", 2}, {"context", 2}});
  for (const auto& [mesh, sharding] :
       {std::pair{fsdp_tensor, Sharding{{{"fsdp"}, {}, {"tensor"}, {}}}},
        {context, Sharding{{{}, {"context"}, {}, {}}}},
        {three, Sharding{{{"data"}, {"context"}, {"tensor"}, {}}}}}) {
    AttentionProgram many(shape, DType::kF32, {.block = 16, .sharding = sharding}, mesh);
    const auto got = Results(many.graph, many.inputs);
    for (size_t r = 0; r < want.size(); ++r) {
      std::vector<double> values;
      for (int64_t i = 0; i < want[r].num_elements(); ++i) values.push_back(want[r].Get(i));
      EXPECT_LE(WorstError(got[r], values), 2e-6) << kResults[r] << " on " << mesh.ToString();
    }
  }
}

int64_t Count(const std::string& text, std::string_view what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

std::string OptimizedHlo(const Graph& graph) {
  const Result<pjrt::Client*> client = pjrt::SharedDefaultClient(graph.mesh().num_devices());
  CHECK(client.ok(), "{}", client.status().ToString());
  Result<std::string> text = pjrt::DumpOptimizedHlo(**client, graph.ToProgram());
  CHECK(text.ok(), "{}", text.status().ToString());
  return *std::move(text);
}

TEST_F(AttentionCompiled, DevicesTalkAboutKeysOnly) {
  const AttentionShape shape{.B = 4, .T = 64, .N = 4, .K = 2, .H = 16, .window = 20};
  AttentionProgram heads(shape, DType::kF32, {.sharding = Sharding{{{"fsdp"}, {}, {"tensor"}, {}}}},
                         Mesh({{"fsdp", 2}, {"tensor", 2}}));
  const std::string without = OptimizedHlo(heads.graph);
  for (const char* collective :
       {"all-gather(", "all-reduce(", "collective-permute(", "all-to-all("})
    EXPECT_EQ(Count(without, collective), 0) << collective;
  const auto along_sequence = [](int64_t window) {
    AttentionProgram program({.B = 4, .T = 64, .N = 4, .K = 2, .H = 16, .window = window},
                             DType::kF32, {.sharding = Sharding{{{}, {"context"}, {}, {}}}},
                             Mesh({{"context", 4}}));
    return OptimizedHlo(program.graph);
  };
  const std::string full = along_sequence(0);
  EXPECT_GE(Count(full, " all-gather("), 1);
  EXPECT_LE(Count(full, " all-gather("), 4);  // k and v, forward and backward
  EXPECT_EQ(Count(full, "all-to-all("), 0);
  const std::string one_neighbour = along_sequence(17);
  EXPECT_EQ(Count(one_neighbour, " all-gather(") + Count(one_neighbour, " all-reduce("), 0);
  EXPECT_LE(Count(one_neighbour, " collective-permute("), 6);  // and the gradients back
}

// Two layers in a scan, each run again in the backward pass: the whole layer, or all but attention.
struct Layers {
  Graph graph;
  std::vector<RefTensor> inputs;

  enum class Kept { kAll, kInputs, kAttention };
  explicit Layers(Kept kept, const Mesh& mesh = {}, const std::optional<Sharding>& sharding = {})
      : graph("layers", mesh) {
    const int64_t B = 1, T = 40, D = 16, L = 2;
    const TensorType state{DType::kF32, {B, T, D}}, weights{DType::kF32, {L, D, 3 * D}};
    const Value x = graph.Parameter("x", state), w = graph.Parameter("w", weights);
    const auto layer = [&](Values in) {
      const Value qkv = Dot(in[0], in[1]);
      const auto part = [&](int64_t i) {
        return Reshape(Slice(qkv, {0, 0, i * D}, {B, T, (i + 1) * D}), {B, T, 2, D / 2});
      };
      const Value out =
          Attention(part(0), part(1), part(2), {.window = 12, .block = 16, .sharding = sharding});
      return Values{in[0] + Reshape(out, {B, T, D})};
    };
    const Value y = graph::Scan({x}, {w}, [&](Values carry, Values xs) {
                      const Values in{carry[0], xs[0]};
                      if (kept == Kept::kAll) return graph::ScanStep{layer(in), {}};
                      graph::RematPolicy policy;
                      if (kept == Kept::kAttention)
                        policy.save = {"attention_out", "attention_lse"};
                      return graph::ScanStep{graph::Remat(in, layer, policy), {}};
                    }).carry[0];
    const Value loss = SumOfProducts(y, y);
    graph.Result("loss", loss);
    for (const Value grad : Grad(loss, {x, w})) graph.Result("grad", grad);
    inputs = {Noise(state, 1), Noise(weights, 2)};
  }
};

TEST_F(AttentionCompiled, InsideScanAndRematTheGradientIsTheSame) {
  Layers all(Layers::Kept::kAll), remat(Layers::Kept::kInputs), named(Layers::Kept::kAttention);
  const auto twin = Interpret(all.graph, all.inputs, {.round = false});
  for (const Layers* layers : {&all, &remat, &named}) {
    const auto got = Results(layers->graph, layers->inputs);
    for (size_t r = 0; r < twin.size(); ++r) EXPECT_LE(WorstError(got[r], twin[r].data), 2e-6);
  }
}

TEST_F(AttentionCompiled, NamedResidualsSpareTheSecondForwardPass) {
  const Mesh context({{"context", 2}});
  const auto layers = [&](Layers::Kept kept, bool cut) {
    return cut ? OptimizedHlo(Layers(kept, context, Sharding{{{}, {"context"}, {}, {}}}).graph)
               : OptimizedHlo(Layers(kept).graph);
  };
  for (const bool cut : {false, true}) {
    const std::string inputs = layers(Layers::Kept::kInputs, cut),
                      named = layers(Layers::Kept::kAttention, cut);
    // Scores and weighted values: two products fewer.
    EXPECT_EQ(Count(inputs, " dot(") - Count(named, " dot("), 2) << cut;
  }
}

int64_t TempBytes(const Graph& graph) {
  const Result<pjrt::Client*> client = pjrt::SharedDefaultClient(graph.mesh().num_devices());
  CHECK(client.ok(), "{}", client.status().ToString());
  const auto executable = (*client)->Compile(graph.ToProgram());
  CHECK(executable.ok(), "{}", executable.status().ToString());
  return (*executable)->memory_stats().temp_bytes;
}

// One head's [T,T] in f32 would be 268 MB; q, k, v, their blocks and gradients are 8.4 MB each.
TEST_F(AttentionCompiled, MemoryOfALongSequenceIsLinear) {
  const AttentionProgram program({.B = 1, .T = 8192, .N = 4, .K = 4, .H = 64, .window = 4096},
                                 DType::kF32);
  EXPECT_LE(TempBytes(program.graph), 100'000'000);
}

}  // namespace
}  // namespace ulmus::nn
