// RMSNorm compiled: kernel and portable lowering against each other and against the interpreter, on
// every CPU plugin.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ostream>

#include "graph/functions.h"
#include "kernels/table.h"
#include "nn/rms_norm.h"
#include "nn/testing/norm_program.h"
#include "nn/testing/run_graph_testing.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;

class RmsNormPlugin : public testing::TestWithParam<pjrt::PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed; run `make setup`";
  }

  static std::vector<HostTensor> Run(const Graph& graph, const std::vector<RefTensor>& inputs,
                                     bool use_kernels) {
    pjrt::Client& client = ClientFor(GetParam(), graph);
    const Status registered = pjrt::RegisterCustomCalls(client.plugin(), kernels::AllKernels());
    CHECK(registered.ok(), "{}", registered.ToString());
    const Program program = graph.ToProgram({.platform = "cpu", .use_kernels = use_kernels});
    EXPECT_EQ(program.custom_calls.empty(), !use_kernels);
    return RunProgram(client, program, inputs);
  }
};

INSTANTIATE_TEST_SUITE_P(Plugins, RmsNormPlugin, testing::ValuesIn(pjrt::KnownCpuPlugins()),
                         [](const auto& plugin) {
                           std::string name = plugin.param.name;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

// Tolerance: a share of the tensor's largest magnitude. f32: sums in another order. bf16: one
// rounding, or two where a value lies near the middle of two; sums over rows of rounded values stay
// below that.
void ExpectNear(const HostTensor& got, const RefTensor& want, double f32_tolerance,
                const std::string& what) {
  ASSERT_EQ(got.type(), want.type) << what;
  double largest = 0, worst_error = -1;
  int64_t worst = 0;
  for (int64_t i = 0; i < got.num_elements(); ++i) {
    const double expected = want.data[static_cast<size_t>(i)],
                 error = std::fabs(got.Get(i) - expected);
    largest = std::max(largest, std::fabs(expected));
    if (!(error <= worst_error)) worst = i, worst_error = error;
  }
  const double tolerance = got.dtype() == DType::kBF16 ? 1.0 / 128 : f32_tolerance;
  EXPECT_LE(worst_error, tolerance * largest)
      << what << ": element " << worst << " is " << got.Get(worst) << ", expected "
      << want.data[static_cast<size_t>(worst)];
}

constexpr const char* kResults[] = {"y", "loss", "dx", "dscale"};

TEST_P(RmsNormPlugin, BothLoweringsEqualTheInterpreter) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape& shape : {Shape{7}, Shape{3, 8}, Shape{2, 50, 96}}) {
      NormProgram program({dtype, shape});
      const auto want = Interpret(program.graph, program.inputs);
      for (const bool use_kernels : {false, true}) {
        const auto got = Run(program.graph, program.inputs, use_kernels);
        for (size_t i = 0; i < want.size(); ++i) {
          // The loss of bf16 sums products with y, which may be rounded the other way.
          const double tolerance = dtype == DType::kBF16 && i == 1 ? 2e-2 : 1e-5;
          ExpectNear(got[i], want[i], tolerance,
                     fmt::format("{} {} kernels={}", program.inputs[0].type.ToString(), kResults[i],
                                 use_kernels));
        }
      }
    }
  }
}

bool SameBits(const HostTensor& a, const HostTensor& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

TEST_P(RmsNormPlugin, RowsOnEightDevicesEqualOneDevice) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TensorType type{dtype, {16, 12, 96}};
    const Mesh mesh({{"data", 4}, {"context", 2}, {"tensor", 1}});
    NormProgram one(type), eight(type, {.sharding = Sharding{{{"data"}, {"context"}, {}}}}, mesh);
    const auto want = Run(one.graph, one.inputs, true);
    for (const bool use_kernels : {false, true}) {
      const auto got = Run(eight.graph, eight.inputs, use_kernels);
      for (size_t i = 0; i < want.size(); ++i) {
        ExpectNear(got[i], RefTensor::FromHost(want[i]),
                   dtype == DType::kBF16 && i == 1 ? 2e-2 : 1e-5,
                   fmt::format("{} {} kernels={}", type.ToString(), kResults[i], use_kernels));
      }
      if (!use_kernels) continue;
      EXPECT_TRUE(SameBits(got[0], want[0])) << "y: rows do not know how many devices there are";
      EXPECT_TRUE(SameBits(got[2], want[2])) << "dx";
    }
  }
}

TEST_P(RmsNormPlugin, RowsCutAlongSomeAxesOnlyEqualOneDevice) {
  const TensorType type{DType::kF32, {8, 96}};
  NormProgram one(type),
      some(type, {.sharding = Sharding{{{"data"}, {}}}}, Mesh({{"data", 4}, {"tensor", 2}}));
  const auto want = Run(one.graph, one.inputs, true), got = Run(some.graph, some.inputs, true);
  for (size_t i = 0; i < want.size(); ++i)
    ExpectNear(got[i], RefTensor::FromHost(want[i]), 1e-5, kResults[i]);
  EXPECT_TRUE(SameBits(got[0], want[0]));
  EXPECT_TRUE(SameBits(got[2], want[2]));
}

TEST_P(RmsNormPlugin, ACutWidthIsLeftToTheCompiler) {
  const Mesh mesh({{"data", 4}, {"tensor", 2}});
  const TensorType type{DType::kF32, {8, 96}}, scale_type{DType::kF32, {96}};
  Graph graph("cut", mesh);
  const Sharding both{{{"data"}, {"tensor"}}};
  const Value x = graph.Parameter("x", type, both),
              scale = graph.Parameter("scale", scale_type, Sharding{{{"tensor"}}});
  const Value y = RmsNorm(x, scale, kEps);
  graph.Result("y", y, both);
  graph.Result("dx", Grad(ReduceSum(Mul(y, y * y), {0, 1}), {x})[0], both);
  const std::vector<RefTensor> inputs{Waves(type, 0), Waves(scale_type, 1)};
  const auto want = Interpret(graph, inputs);
  const auto got = Run(graph, inputs, false);
  ExpectNear(got[0], want[0], 1e-5, "y");
  ExpectNear(got[1], want[1], 1e-5, "dx");
}

// x = x + tanh(norm(x; scale[l])) over layers, rematerialised, on eight devices: the kernel in
// loops, forward and backward.
TEST_P(RmsNormPlugin, RunsInAScanWithRematerialisationOnEightDevices) {
  constexpr int64_t kLayers = 3;
  const TensorType type{DType::kF32, {8, 10, 32}}, scales_type{DType::kF32, {kLayers, 32}};
  const Sharding rows{{{"data", "fsdp"}, {}, {}}};
  Graph graph("scan", Mesh({{"data", 2}, {"fsdp", 4}}));
  const Value x = graph.Parameter("x", type, rows), scales = graph.Parameter("scales", scales_type);
  const auto layer = [&](Values in) {
    return Values{in[0] + Tanh(RmsNorm(in[0], in[1], kEps, {.sharding = rows}))};
  };
  const Value y = graph::Scan({x}, {scales}, [&](Values carry, Values xs) {
                    return graph::ScanStep{graph::Remat({carry[0], xs[0]}, layer), {}};
                  }).carry[0];
  const Values grads = Grad(ReduceSum(graph::Square(y), {0, 1, 2}), {x, scales});
  graph.Result("y", y, rows);
  graph.Result("dx", grads[0], rows);
  graph.Result("dscales", grads[1]);
  const std::vector<RefTensor> inputs{Waves(type, 0), Waves(scales_type, 1)};
  const auto want = Interpret(graph, inputs, {.round = false});
  for (const bool use_kernels : {false, true}) {
    const auto got = Run(graph, inputs, use_kernels);
    for (size_t i = 0; i < want.size(); ++i)
      ExpectNear(got[i], want[i], 1e-5, fmt::format("result {} kernels={}", i, use_kernels));
  }
}

int64_t NumDifferent(const HostTensor& got, const RefTensor& want) {
  int64_t count = 0;
  for (int64_t i = 0; i < got.num_elements(); ++i)
    count += got.Get(i) != want.data[static_cast<size_t>(i)] ? 1 : 0;
  return count;
}

TEST_P(RmsNormPlugin, TwoRoundingsAreKeptByTheCompiler) {
  const TensorType type{DType::kBF16, {5, 64}};
  NormProgram twice(type, {.rounding = NormRounding::kTwice}), once(type);
  const auto want = Interpret(twice.graph, twice.inputs);
  const auto got = Run(twice.graph, twice.inputs, false);
  EXPECT_LE(NumDifferent(got[0], want[0]),
            3);  // of 320: a value as near to the middle of two as f32 can tell
  EXPECT_GE(NumDifferent(got[0], Interpret(once.graph, once.inputs)[0]), 50);
  // Backward, roundings between ops are the compiler's to drop: up to three of 2^-8.
  ExpectNear(got[2], want[2], 2e-2, "dx");
  ExpectNear(got[3], want[3], 2e-2, "dscale");
}

}  // namespace
}  // namespace ulmus::nn
