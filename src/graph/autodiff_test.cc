// What the backward pass keeps, repeats and refuses. Numbers are in op_test.cc.
#include "graph/autodiff.h"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/functions.h"
#include "graph/interpret.h"
#include "graph/ops.h"
#include "graph/ops/table.h"

namespace ulmus::graph {
namespace {

const TensorType kRow{DType::kF32, {4}};

// The scans of the outermost region, in order: forward first.
std::vector<const Node*> Scans(const Graph& g) {
  std::vector<const Node*> scans;
  for (const Node* node : g.root().nodes) {
    if (node->op == &kScan) scans.push_back(node);
  }
  return scans;
}

int64_t ResultBytes(const Node& node) {
  int64_t bytes = 0;
  for (const TensorType& type : node.results) bytes += type.size_bytes();
  return bytes;
}

TEST(Grad, OfAnUnrelatedValueIsZero) {
  Graph g("zero");
  const Value x = g.Parameter("x", kRow), y = g.Parameter("y", kRow);
  g.Result("dy", Grad(ReduceSum(x, {0}), {y})[0]);
  const RefTensor ones{kRow, {1, 1, 1, 1}};
  EXPECT_EQ(Interpret(g, std::vector{ones, ones})[0].data, (std::vector<double>{0, 0, 0, 0}));
}

TEST(Grad, StopsAtStopGradient) {
  Graph g("stop");
  const Value x = g.Parameter("x", kRow);
  g.Result("dx", Grad(ReduceSum(x * StopGradient(x), {0}), {x})[0]);
  EXPECT_EQ(Interpret(g, std::vector{RefTensor{kRow, {1, 2, 3, 4}}})[0].data,
            (std::vector<double>{1, 2, 3, 4}));
}

TEST(Grad, OfAnIntermediateValueDoesNotPassThroughIt) {
  Graph g("middle");
  const Value x = g.Parameter("x", kRow);
  const Value y = Exp(x);
  g.Result("dy", Grad(ReduceSum(y * y, {0}), {y})[0]);
  const double e2 = 2 * std::exp(0.5);
  EXPECT_NEAR(
      Interpret(g, std::vector{RefTensor{kRow, {0.5, 0.5, 0.5, 0.5}}}, {.round = false})[0].data[0],
      e2, 1e-12);
}

TEST(Grad, OfAGradientIsTheSecondDerivative) {
  Graph g("second");
  const Value x = g.Parameter("x", {DType::kF64, {}});
  const Value first =
      Grad(Scan({x}, {}, [](Values c, Values) { return ScanStep{{Sin(c[0])}, {}}; }, {.length = 2})
               .carry[0],
           {x})[0];
  g.Result("second", Grad(first, {x})[0]);
  // (sin sin x)'' = -sin(sin x) cos^2 x - cos(sin x) sin x
  const double v = 0.7, s = std::sin(v), c = std::cos(v);
  EXPECT_NEAR(
      Interpret(g, std::vector{RefTensor{{DType::kF64, {}}, {v}}}, {.round = false})[0].data[0],
      -std::sin(s) * c * c - std::cos(s) * s, 1e-12);
}

// x + tanh(x w1) w2 over L layers.
Value Layers(Value x, Value w1, Value w2, bool remat, RematPolicy policy = {}) {
  return Scan({x}, {w1, w2},
              [&](Values c, Values w) {
                const auto body = [](Values in) {
                  return Values{in[0] +
                                Dot(CheckpointName(Tanh(Dot(in[0], in[1])), "hidden"), in[2])};
                };
                const Values in = {c[0], w[0], w[1]};
                return ScanStep{remat ? Remat(in, body, policy) : body(in), {}};
              })
      .carry[0];
}

int64_t ForwardScanBytes(bool remat, RematPolicy policy = {}) {
  Graph g("layers");
  const Value x = g.Parameter("x", {DType::kF32, {8, 4}});
  const Value w1 = g.Parameter("w1", {DType::kF32, {6, 4, 16}}),
              w2 = g.Parameter("w2", {DType::kF32, {6, 16, 4}});
  const Value y = Layers(x, w1, w2, remat, policy);
  Grad(ReduceSum(y, {0, 1}), {w1, w2});
  const std::vector<const Node*> scans = Scans(g);
  CHECK(scans.size() == 2, "{} scans", scans.size());
  return ResultBytes(*scans[0]);
}

TEST(Scan, WithoutRematKeepsWhatTheBackwardPassReads) {
  // carry, then per layer its input and the hidden activation; the weights are read again from xs.
  EXPECT_EQ(ForwardScanBytes(false), 8 * 4 * 4 + 6 * (8 * 4 + 8 * 16) * 4);
}

TEST(Scan, WithRematKeepsOneCarryPerLayer) {
  EXPECT_EQ(ForwardScanBytes(true), 8 * 4 * 4 + 6 * 8 * 4 * 4);
}

TEST(Scan, RematPolicyKeepsTheNamedValuesAsWell) {
  EXPECT_EQ(ForwardScanBytes(true, {.save = {"hidden"}}), 8 * 4 * 4 + 6 * (8 * 4 + 8 * 16) * 4);
}

TEST(Scan, TwoGradientsShareWhatTheForwardPassKeeps) {
  Graph g("twice");
  const Value x = g.Parameter("x", {DType::kF32, {8, 4}});
  const Value w1 = g.Parameter("w1", {DType::kF32, {6, 4, 16}}),
              w2 = g.Parameter("w2", {DType::kF32, {6, 16, 4}});
  const Value loss = ReduceSum(Layers(x, w1, w2, false), {0, 1});
  Grad(loss, {w1, w2});
  const int64_t once = ResultBytes(*Scans(g)[0]);
  Grad(loss, {w1});
  Grad(loss, {w2});
  EXPECT_EQ(ResultBytes(*Scans(g)[0]), once);
}

TEST(Cond, TwoGradientsShareWhatTheForwardPassKeeps) {
  Graph g("twice");
  const Value x = g.Parameter("x", kRow), flag = g.Parameter("flag", {DType::kBool, {}});
  const Value y = Cond(flag, [&] { return Values{Sin(Exp(x))}; }, [&] { return Values{x}; })[0];
  const Value loss = ReduceSum(y, {0});
  Grad(loss, {x});
  const size_t once = y.node()->results.size();
  Grad(loss, {x});
  EXPECT_EQ(y.node()->results.size(), once);
}

TEST(Scan, CastsOfWeightsAreRepeatedNotKept) {
  Graph g("casts");
  const Value x = g.Parameter("x", {DType::kBF16, {2, 4}}),
              w = g.Parameter("w", {DType::kF32, {3, 4, 4}});
  const Value y = Scan({x}, {w}, [](Values c, Values layer) {
                    return ScanStep{{Dot(c[0], Convert(layer[0], DType::kBF16))}, {}};
                  }).carry[0];
  Grad(ReduceSum(Convert(y, DType::kF32), {0, 1}), {w});
  EXPECT_EQ(ResultBytes(*Scans(g)[0]), 2 * 4 * 2 + 3 * 2 * 4 * 2)
      << "only the carry of each layer, in bf16";
}

TEST(Scan, GradientOfACapturedBFloat16ValueIsSummedInFloat32) {
  Graph g("captured");
  const Value x = g.Parameter("x", {DType::kBF16, {}});
  const Value ones = Splat(g, 1, {DType::kBF16, {1000}});
  const Value sum = Scan({Splat(g, 0, {DType::kF32, {}})}, {ones}, [&](Values c, Values e) {
                      return ScanStep{{c[0] + Convert(x * e[0], DType::kF32)}, {}};
                    }).carry[0];
  g.Result("dx", Grad(sum, {x})[0]);
  // In bf16 the sum of ones would stay at 256.
  EXPECT_EQ(Interpret(g, std::vector{RefTensor{{DType::kBF16, {}}, {1}}})[0].data[0], 1000);
}

TEST(Remat, OutsideALoopStandsBehindABarrier) {
  Graph g("barrier");
  const Value x = g.Parameter("x", kRow);
  g.Result("dx",
           Grad(ReduceSum(Remat({x}, [](Values in) { return Values{Sin(Exp(in[0]))}; })[0], {0}),
                {x})[0]);
  const std::string text = g.ToProgram().text;
  EXPECT_NE(text.find("stablehlo.optimization_barrier"), std::string::npos) << text;
}

TEST(GradDeathTest, NamesAnOpWithoutGradient) {
  Graph g("no_gradient");
  const Value x = g.Parameter("x", {DType::kF32, {}});
  const Value y = While(
      {x}, [](Values c) { return Compare(Cmp::kLt, c[0], SplatLike(c[0], 9)); },
      [](Values c) { return Values{c[0] * 2.0}; })[0];
  EXPECT_DEATH(Grad(y, {x}), "autodiff_test.cc:[0-9]+: .*stablehlo.while has no gradient");
}

TEST(GradDeathTest, RefusesACustomGradientThatClosesOverAnInput) {
  Graph g("closure");
  const Value x = g.Parameter("x", kRow), y = g.Parameter("y", kRow);
  const Value z = CustomGradient(
      {x}, [&](Values in) { return CustomForward{{in[0] * y}, {}}; },
      [](Values, Values, Values ct) { return ct; })[0];
  EXPECT_DEATH(Grad(ReduceSum(z, {0}), {y}),
               "autodiff_test.cc:[0-9]+: .*custom_gradient: the forward function uses f32\\[4\\] "
               "from outside");
}

}  // namespace
}  // namespace ulmus::graph
