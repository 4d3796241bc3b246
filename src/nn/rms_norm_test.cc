#include "nn/rms_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/interpret.h"
#include "graph/ops.h"
#include "kernels/table.h"
#include "kernels/testing/rms_norm_reference.h"
#include "nn/testing/norm_program.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void ExpectNear(std::span<const double> got, std::span<const double> want, double tolerance,
                const char* what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::fabs(want[i])))
        << what << "[" << i << "]";
}

TEST(RmsNorm, EqualsTheTwinOfTheKernel) {
  for (const Shape& shape : {Shape{7}, Shape{1, 1}, Shape{3, 8}, Shape{2, 3, 5}}) {
    NormProgram program({DType::kF32, shape});
    const auto results = Interpret(program.graph, program.inputs, {.round = false});
    const auto& [x, scale, ct] =
        std::tie(program.inputs[0].data, program.inputs[1].data, program.inputs[2].data);
    const kernels::RmsNormGradients want =
        kernels::RmsNormBackwardReference(x, scale, ct, static_cast<double>(kEps));
    ExpectNear(results[0].data, kernels::RmsNormReference(x, scale, static_cast<double>(kEps)),
               1e-12, "y");
    ExpectNear(results[2].data, want.dx, 1e-12, "dx");
    ExpectNear(results[3].data, want.dscale, 1e-12, "dscale");
  }
}

void ExpectGradientEqualsDifferences(const RmsNormOptions& options, const Mesh& mesh) {
  NormProgram program({DType::kF32, {4, 2, 5}}, options, mesh);
  const auto loss = [&](const std::vector<RefTensor>& inputs) {
    return Interpret(program.graph, inputs, {.round = false})[1].data[0];
  };
  const auto results = Interpret(program.graph, program.inputs, {.round = false});
  for (const size_t input : {0, 1}) {
    const RefTensor& grad = results[2 + input];
    for (size_t i = 0; i < grad.data.size(); ++i) {
      std::vector<RefTensor> above = program.inputs, below = program.inputs;
      const double h = 1e-5;
      above[input].data[i] += h;
      below[input].data[i] -= h;
      // Truncation h^2 f'''/6 and cancellation eps/h are both near 1e-10.
      EXPECT_NEAR(grad.data[i], (loss(above) - loss(below)) / (2 * h), 1e-8)
          << "input " << input << " element " << i;
    }
  }
}

TEST(RmsNorm, GradientEqualsCentralDifferencesInDouble) { ExpectGradientEqualsDifferences({}, {}); }
TEST(RmsNorm, GradientOfTheTwoRoundingsEqualsCentralDifferences) {
  ExpectGradientEqualsDifferences({.rounding = NormRounding::kTwice}, {});
}
TEST(RmsNorm, GradientOfRowsOnFourDevicesEqualsCentralDifferences) {
  ExpectGradientEqualsDifferences({.sharding = Sharding{{{"data"}, {"context"}, {}}}},
                                  Mesh({{"data", 2}, {"context", 2}, {"tensor", 1}}));
}
TEST(RmsNorm, GradientWithRowsCutAlongSomeAxesOnlyEqualsCentralDifferences) {
  ExpectGradientEqualsDifferences({.sharding = Sharding{{{"data"}, {}, {}}}},
                                  Mesh({{"data", 2}, {"tensor", 2}}));
}

// x = 1.5, 2.5 with eps 0: rms = sqrt(4.25), n = 0.727607, 1.212678; scale 1.0078125 (exact in
// bf16), 1.001 (rounds to 1). Once: 0.733291 and 1.213891 round to 0.734375 and 1.2109375. Twice: n
// rounds to 0.7265625 and 1.2109375, the first product, 0.732239, lies between 0.73046875 and
// 0.734375 and nearer to the lower one.
TEST(RmsNorm, TheTwoRoundingsDifferAsComputedByHand) {
  const auto run = [](NormRounding rounding) {
    Graph graph("norm");
    const Value x = graph.Parameter("x", {DType::kBF16, {2}}),
                scale = graph.Parameter("scale", {DType::kF32, {2}});
    graph.Result("y", RmsNorm(x, scale, 0.0f, {.rounding = rounding}));
    const std::vector<RefTensor> inputs{
        {{DType::kBF16, {2}}, {1.5, 2.5}},
        {{DType::kF32, {2}}, {1.0078125, RoundTo(DType::kF32, 1.001)}}};
    return Interpret(graph, inputs)[0];
  };
  const RefTensor once = run(NormRounding::kOnce), twice = run(NormRounding::kTwice);
  EXPECT_EQ(once.type.dtype, DType::kBF16);
  EXPECT_EQ(twice.type.dtype, DType::kBF16);
  EXPECT_THAT(once.data, testing::ElementsAre(0.734375, 1.2109375));
  EXPECT_THAT(twice.data, testing::ElementsAre(0.73046875, 1.2109375));
}

std::string TextOf(const RmsNormOptions& options, const Mesh& mesh, graph::ProgramOptions print) {
  print.locations = false;
  return NormProgram({DType::kBF16, {8, 4}}, options, mesh).graph.ToProgram(print).text;
}

TEST(RmsNorm, CallsTheKernelOnlyWhereAsked) {
  const graph::ProgramOptions cpu{.platform = "cpu", .use_kernels = true};
  EXPECT_THAT(TextOf({}, {}, cpu),
              AllOf(HasSubstr("@ulmus_rms_norm("), HasSubstr("@ulmus_rms_norm_backward("),
                    Not(HasSubstr("stablehlo.rsqrt"))));
  EXPECT_THAT(TextOf({}, {}, {}),
              AllOf(HasSubstr("stablehlo.rsqrt"), Not(HasSubstr("custom_call"))));
  EXPECT_THAT(TextOf({}, {}, {.platform = "tpu", .use_kernels = true}),
              Not(HasSubstr("custom_call")));
  EXPECT_THAT(TextOf({.rounding = NormRounding::kTwice}, {}, cpu), Not(HasSubstr("custom_call")));
}

TEST(RmsNorm, OnAMeshTheKernelStandsInAManualRegion) {
  const graph::ProgramOptions cpu{.platform = "cpu", .use_kernels = true};
  const Mesh mesh({{"data", 4}, {"tensor", 2}});
  const std::string cut = TextOf({.sharding = Sharding{{{"data"}, {}}}}, mesh, cpu);
  EXPECT_THAT(cut, AllOf(HasSubstr("manual_axes={\"data\"}"),
                         HasSubstr("(tensor<2x4xbf16>, tensor<4xf32>) -> (tensor<2x4xbf16>)")));
  EXPECT_THAT(TextOf({}, mesh, cpu),
              Not(HasSubstr("custom_call")));  // the compiler could not partition it
}

TEST(RmsNorm, InsideManualTheKernelStandsAsItIs) {
  Graph graph("norm", Mesh({{"data", 4}}));
  const Sharding rows{{{"data"}, {}}};
  const Value x = graph.Parameter("x", {DType::kF32, {8, 4}}, rows),
              scale = graph.Parameter("scale", {DType::kF32, {4}});
  const auto body = [&](Values blocks) { return Values{RmsNorm(blocks[0], blocks[1], kEps)}; };
  graph.Result(
      "y",
      graph::Manual({x, scale},
                    {.in = {rows, Sharding::Replicated(1)}, .out = {rows}, .axes = {"data"}},
                    body)[0],
      rows);
  const std::string text = graph.ToProgram({.platform = "cpu", .use_kernels = true}).text;
  EXPECT_THAT(text, HasSubstr("@ulmus_rms_norm("));

  const auto nested = [&](Values blocks) {
    return Values{RmsNorm(blocks[0], blocks[1], kEps, {.sharding = rows})};
  };
  EXPECT_DEATH(
      graph::Manual({x, scale},
                    {.in = {rows, Sharding::Replicated(1)}, .out = {rows}, .axes = {"data"}},
                    nested),
      "a sharding inside Manual");
}

TEST(RmsNorm, InsideManualOverSomeAxesItIsLeftToTheCompiler) {
  Graph graph("norm", Mesh({{"data", 4}, {"tensor", 2}}));
  const Sharding rows{{{"data"}, {}}};
  const Value x = graph.Parameter("x", {DType::kF32, {8, 4}}, rows),
              scale = graph.Parameter("scale", {DType::kF32, {4}});
  const auto body = [&](Values blocks) { return Values{RmsNorm(blocks[0], blocks[1], kEps)}; };
  graph.Result(
      "y",
      graph::Manual({x, scale},
                    {.in = {rows, Sharding::Replicated(1)}, .out = {rows}, .axes = {"data"}},
                    body)[0],
      rows);
  EXPECT_THAT(graph.ToProgram({.platform = "cpu", .use_kernels = true}).text,
              Not(HasSubstr("custom_call")));
}

TEST(RmsNorm, ItsKernelsAreInTheTable) {
  NormProgram program({DType::kF32, {2, 4}});
  const std::vector<std::string> calls =
      program.graph.ToProgram({.platform = "cpu", .use_kernels = true}).custom_calls;
  EXPECT_EQ(calls.size(), 2u);
  for (const std::string& call : calls)
    EXPECT_EQ(std::ranges::count(kernels::AllKernels(), call, &CustomCallHandler::target), 1)
        << call;
}

TEST(RmsNormDeathTest, MistakesNameShapesAndTheLineOfTheCaller) {
  Graph graph("norm", Mesh({{"data", 4}}));
  const Value x = graph.Parameter("x", {DType::kF32, {8, 4}}),
              scale = graph.Parameter("scale", {DType::kF32, {4}});
  const Value narrow = graph.Parameter("narrow", {DType::kF32, {3}}),
              ints = graph.Parameter("ints", {DType::kI32, {8, 4}});
  EXPECT_DEATH(
      RmsNorm(x, narrow, kEps),
      "rms_norm_test.cc:[0-9]+: .*scale is f32\\[3\\], expected f32\\[4\\] for x f32\\[8,4\\]");
  EXPECT_DEATH(RmsNorm(ints, scale, kEps),
               "x is i32\\[8,4\\], expected f32\\[...,D\\] or bf16\\[...,D\\]");
  EXPECT_DEATH(RmsNorm(x, scale, kEps, {.sharding = Sharding{{{}, {"data"}}}}), "cuts the width");
  EXPECT_DEATH(RmsNorm(x, scale, kEps, {.sharding = Sharding{{{"data"}}}}),
               "x is f32\\[8,4\\], its sharding \\[\\{data\\}\\]");
}

}  // namespace
}  // namespace ulmus::nn
