// Programs at the edges of what the ops promise, evaluated by the naive twin. Each test is named after the claim or the
// fault it stands for; edge_cases_plugin_test compiles the ones that depend on the text.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/interpret.h"
#include "graph/ops.h"

namespace ulmus::graph {
namespace {

const TensorType kScalar{DType::kF64, {}}, kRow{DType::kF64, {4}};

// Results of the graph for scalar arguments.
std::vector<double> ValuesOf(const Graph& g, std::vector<double> arguments) {
  std::vector<RefTensor> inputs;
  for (double x : arguments) inputs.push_back({kScalar, {x}});
  std::vector<double> values;
  for (const RefTensor& t : Interpret(g, inputs, {.round = false})) values.push_back(t.data[0]);
  return values;
}

TEST(EdgeCases, ARematInputThatIsAlsoCapturedCountsOnce) {
  // Inside a loop no barrier tells the two apart.
  Graph g("twice");
  const Value x = g.Parameter("x", kScalar);
  const Value y = Scan({x}, {}, [](Values c, Values) {
                    return ScanStep{Remat({c[0], c[0]}, [&](Values in) { return Values{in[0] * in[1] * c[0]}; }), {}};
                  }, {.length = 1}).carry[0];
  g.Result("dx", Grad(y, {x})[0]);
  EXPECT_DOUBLE_EQ(ValuesOf(g, {2})[0], 12);  // 3 x^2
}

TEST(EdgeCases, AKernelInputGivenTwiceCountsOnce) {
  static const KernelDef kProduct = {
      .name = "product", .portable = [](const KernelAttrs&, Values v) { return Values{v[0] * v[1]}; }, .vjp = nullptr, .targets = {}};
  Graph g("twice");
  const Value x = g.Parameter("x", kScalar);
  g.Result("dx", Grad(KernelCall(kProduct, {}, {x, x})[0], {x})[0]);
  EXPECT_DOUBLE_EQ(ValuesOf(g, {3})[0], 6);
}

TEST(EdgeCases, SecondDerivativeThroughACallReachesWhatTheFirstOneKept) {
  Graph g("call");
  const Value x = g.Parameter("x", kScalar);
  const Function f = DefineFunction(g, {kScalar}, [](Values in) { return Values{Sin(Exp(in[0]))}; });
  const Value first = Grad(Call(f, {x})[0], {x})[0];
  g.Result("first", first);
  g.Result("second", Grad(first, {x})[0]);
  g.Result("third", Grad(Grad(first, {x})[0], {x})[0]);
  const double e = std::exp(0.3), s = std::sin(e), c = std::cos(e);
  const std::vector<double> got = ValuesOf(g, {0.3});
  EXPECT_NEAR(got[0], e * c, 1e-12);
  EXPECT_NEAR(got[1], e * c - e * e * s, 1e-12);
  EXPECT_NEAR(got[2], e * c - 3 * e * e * s - e * e * e * c, 1e-12);
}

TEST(EdgeCases, SecondDerivativeThroughACustomGradientReachesItsResiduals) {
  Graph g("custom");
  const Value x = g.Parameter("x", kScalar);
  const Value y = CustomGradient(
      {x}, [](Values in) { return CustomForward{{Sin(in[0])}, {Cos(in[0])}}; },
      [](Values, Values saved, Values ct) { return Values{ct[0] * saved[0]}; })[0];
  g.Result("second", Grad(Grad(y, {x})[0], {x})[0]);
  EXPECT_NEAR(ValuesOf(g, {0.7})[0], -std::sin(0.7), 1e-12);
}

TEST(EdgeCases, FunctionsThatCallEachOtherTwiceArePrintedInLinearTime) {
  // f0 = x + 1, f(n) = f(n-1)(f(n-1)(x)): 2^60 calls if each were followed.
  Graph g("doubling");
  Function f = DefineFunction(g, {kScalar}, [](Values in) { return Values{in[0] + 1.0}; });
  for (int i = 0; i < 60; ++i) f = DefineFunction(g, {kScalar}, [&](Values in) { return Call(f, Call(f, in)); });
  const Value x = g.Parameter("x", kScalar);
  const Value y = Call(f, {x})[0];
  g.Result("y", y);
  g.Result("dx", Grad(y, {x})[0]);
  EXPECT_LT(g.ToProgram().text.size(), 200000u);
}

TEST(EdgeCases, DeadCodeInRegionsLeavesNoTrace) {
  Graph g("dead");
  const Value x = g.Parameter("x", kRow);
  const Value y = Scan({x}, {}, [](Values c, Values) {
                    Tanh(c[0]);
                    Cond(Compare(Cmp::kGt, ReduceSum(c[0], {0}), Splat(c[0].graph(), 0, kScalar)), [&] { return Values{Exp(c[0])}; },
                         [&] { return Values{c[0]}; });
                    return ScanStep{{Sin(c[0])}, {}};
                  }, {.length = 2}).carry[0];
  g.Result("y", y);
  const std::string text = g.ToProgram().text;
  for (const char* gone : {"tanh", "stablehlo.if", "exponential"}) EXPECT_EQ(text.find(gone), std::string::npos) << gone;
}

TEST(EdgeCases, NegativeZeroAndTheEndsOfIntegersArePrintedExactly) {
  Graph g("literals");
  HostTensor odd(TensorType{DType::kI64, {1}}), top(TensorType{DType::kU64, {}});
  odd.values<int64_t>()[0] = 9007199254740993;
  top.values<uint64_t>()[0] = 18446744073709551615u;
  g.Result("odd", Constant(g, odd));
  g.Result("top", Constant(g, top));
  g.Result("i64", Splat(g, 1e30, {DType::kI64, {}}));
  g.Result("i64_low", Splat(g, -1e30, {DType::kI64, {}}));
  g.Result("u64", Splat(g, 1e30, {DType::kU64, {2}}));
  g.Result("half", Splat(g, 0x1p63, {DType::kU64, {}}));
  g.Result("zero", Splat(g, -0.0, {DType::kBF16, {}}));
  const std::string text = g.ToProgram().text;
  for (const char* literal : {"dense<9007199254740993> : tensor<1xi64>", "dense<18446744073709551615> : tensor<ui64>",
                              "dense<9223372036854775807> : tensor<i64>", "dense<-9223372036854775808> : tensor<i64>",
                              "dense<18446744073709551615> : tensor<2xui64>", "dense<9223372036854775808> : tensor<ui64>",
                              "dense<-0.000000000e+00> : tensor<bf16>"}) {
    EXPECT_NE(text.find(literal), std::string::npos) << literal << "\n" << text;
  }
}

TEST(EdgeCasesDeathTest, AProgramWithoutResultsIsRefused) {
  Graph g("empty");
  Exp(g.Parameter("x", kRow));
  EXPECT_DEATH(g.ToProgram(), "program 'empty' has no results");
}

TEST(EdgeCasesDeathTest, OnlyParametersAreDonated) {
  Graph g("donation");
  const Value y = Exp(g.Parameter("x", kRow));
  EXPECT_DEATH(g.Result("y", y, {}, y), "result 'y' takes the buffer of stablehlo.exponential f64\\[4\\], which is not a parameter");
}

}  // namespace
}  // namespace ulmus::graph
