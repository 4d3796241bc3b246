// Programs at the edges of what the ops promise, evaluated by the naive twin. Each test is named
// after the claim or the fault it stands for; edge_cases_plugin_test compiles the ones that depend
// on the text.
#include <gtest/gtest.h>

#include <chrono>
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
  const Value y =
      Scan({x}, {},
           [](Values c, Values) {
             return ScanStep{
                 Remat({c[0], c[0]}, [&](Values in) { return Values{in[0] * in[1] * c[0]}; }), {}};
           },
           {.length = 1})
          .carry[0];
  g.Result("dx", Grad(y, {x})[0]);
  EXPECT_DOUBLE_EQ(ValuesOf(g, {2})[0], 12);  // 3 x^2
}

TEST(EdgeCases, AKernelInputGivenTwiceCountsOnce) {
  static const KernelDef kProduct = {
      .name = "product",
      .portable = [](const KernelAttrs&, Values v) { return Values{v[0] * v[1]}; },
      .vjp = nullptr,
      .targets = {}};
  Graph g("twice");
  const Value x = g.Parameter("x", kScalar);
  g.Result("dx", Grad(KernelCall(kProduct, {}, {x, x})[0], {x})[0]);
  EXPECT_DOUBLE_EQ(ValuesOf(g, {3})[0], 6);
}

TEST(EdgeCases, SecondDerivativeThroughACallReachesWhatTheFirstOneKept) {
  Graph g("call");
  const Value x = g.Parameter("x", kScalar);
  const Function f =
      DefineFunction(g, {kScalar}, [](Values in) { return Values{Sin(Exp(in[0]))}; });
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
  for (int i = 0; i < 60; ++i)
    f = DefineFunction(g, {kScalar}, [&](Values in) { return Call(f, Call(f, in)); });
  const Value x = g.Parameter("x", kScalar);
  const Value y = Call(f, {x})[0];
  g.Result("y", y);
  g.Result("dx", Grad(y, {x})[0]);
  EXPECT_LT(g.ToProgram().text.size(), 200000u);
}

TEST(EdgeCases, ScanBodiesMayReturnConstantsAndCapturedValues) {
  Graph g("scan");
  const Value x = g.Parameter("x", kScalar), y = g.Parameter("y", kScalar);
  const ScanStep out =
      Scan({x, x, x}, {},
           [&](Values c, Values) {
             return ScanStep{{y, Splat(g, 3, kScalar), c[2]}, {y, Splat(g, 5, kScalar), c[0]}};
           },
           {.length = 2});
  const Value loss = out.carry[0] * out.carry[1] * out.carry[2] +
                     ReduceSum(out.ys[0] * out.ys[1] * out.ys[2], {-1});
  g.Result("loss", loss);
  for (Value grad : Grad(loss, {x, y})) g.Result("grad", grad);
  // 3xy + 5y(x + y)
  EXPECT_EQ(ValuesOf(g, {2, 7}),
            (std::vector<double>{42 + 35 * 9, 3 * 7 + 35, 3 * 2 + 5 * 2 + 10 * 7}));
}

TEST(EdgeCases, RegionsMayReturnTheirInputs) {
  Graph g("identity");
  const Value x = g.Parameter("x", kScalar), y = g.Parameter("y", kScalar);
  const Value flag = Compare(Cmp::kGt, x, y);
  const Function same =
      DefineFunction(g, {kScalar, kScalar}, [](Values in) { return Values{in[1], in[0], in[0]}; });
  const Values chosen = Cond(flag, [&] { return Values{x, y}; }, [&] { return Values{y, y}; });
  const Values called = Call(same, {chosen[0], chosen[1]});
  const Values rerun =
      Remat({called[0], called[1]}, [](Values in) { return Values{in[1], in[0], in[1]}; });
  const Value loss = rerun[0] * 2.0 + rerun[1] * 3.0 + rerun[2] * 4.0 + called[2] * 5.0;
  g.Result("loss", loss);
  for (Value grad : Grad(loss, {x, y})) g.Result("grad", grad);
  EXPECT_EQ(ValuesOf(g, {2, 1}), (std::vector<double>{2 * 11 + 3, 11, 3}));
  EXPECT_EQ(ValuesOf(g, {1, 2}), (std::vector<double>{28, 0, 14}));
}

TEST(EdgeCases, DeadCodeInRegionsLeavesNoTrace) {
  Graph g("dead");
  const Value x = g.Parameter("x", kRow);
  const Value y =
      Scan({x}, {},
           [](Values c, Values) {
             Tanh(c[0]);
             Cond(
                 Compare(Cmp::kGt, ReduceSum(c[0], {0}), Splat(c[0].graph(), 0, kScalar)),
                 [&] { return Values{Exp(c[0])}; }, [&] { return Values{c[0]}; });
             return ScanStep{{Sin(c[0])}, {}};
           },
           {.length = 2})
          .carry[0];
  g.Result("y", y);
  const std::string text = g.ToProgram().text;
  for (const char* gone : {"tanh", "stablehlo.if", "exponential"})
    EXPECT_EQ(text.find(gone), std::string::npos) << gone;
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
  for (const char* literal :
       {"dense<9007199254740993> : tensor<1xi64>", "dense<18446744073709551615> : tensor<ui64>",
        "dense<9223372036854775807> : tensor<i64>", "dense<-9223372036854775808> : tensor<i64>",
        "dense<18446744073709551615> : tensor<2xui64>", "dense<9223372036854775808> : tensor<ui64>",
        "dense<-0.000000000e+00> : tensor<bf16>"}) {
    EXPECT_NE(text.find(literal), std::string::npos) << literal << "\n" << text;
  }
}

TEST(EdgeCases, NamesWithQuotesAndSpacesAreEscaped) {
  static const KernelDef kDef = {.name = "named",
                                 .portable = [](const KernelAttrs&, Values v) { return v; },
                                 .vjp = nullptr,
                                 .targets = {{"cpu", "named"}}};
  Graph g("step 1/\"a\"");
  const Scope scope(g, "a \"quoted\" \\ name");
  g.Result("y",
           KernelCall(kDef, {{"tag", std::string("\"\n")}, {"limit", INFINITY}, {"low", -INFINITY}},
                      {Exp(g.Parameter("x", kScalar))})[0]);
  const std::string text = g.ToProgram({.use_kernels = true}).text;
  for (const char* part :
       {R"(module @"step 1/\22a\22" {)", R"(loc("a \22quoted\22 \5C name"()", R"(tag = "\22\0A")",
        "limit = 0x7F800000 : f32", "low = 0xFF800000 : f32"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(EdgeCases, ReductionsOfNothingAndOfScalars) {
  Graph g("reduce");
  const Value x = g.Parameter("x", kScalar);
  g.Result("sum", ReduceSum(x, {}));
  g.Result("mean", Mean(x, {}));
  g.Result("broadcast", BroadcastTo(x, {1}));
  g.Result("dx", Grad(ReduceSum(BroadcastTo(x, {2, 3}), {-1, -2}), {x})[0]);
  EXPECT_EQ(ValuesOf(g, {4}), (std::vector<double>{4, 4, 4, 6}));
}

TEST(EdgeCasesDeathTest, AProgramWithoutResultsIsRefused) {
  Graph g("empty");
  Exp(g.Parameter("x", kRow));
  EXPECT_DEATH(g.ToProgram(), "program 'empty' has no results");
}

TEST(EdgeCasesDeathTest, OnlyParametersAreDonated) {
  Graph g("donation");
  const Value y = Exp(g.Parameter("x", kRow));
  EXPECT_DEATH(
      g.Result("y", y, {}, y),
      "result 'y' takes the buffer of stablehlo.exponential f64\\[4\\], which is not a parameter");
}

// ---- size: building, differentiating and printing grow linearly ----

double Seconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void BuildChain(int64_t length, bool in_loop, bool cheap) {
  Graph g("chain");
  const Value x = g.Parameter("x", kScalar);
  const auto chain = [&](Value v) {
    for (int64_t i = 0; i < length; ++i)
      v = cheap ? Convert(v, i % 2 == 0 ? DType::kF32 : DType::kF64) : Sin(v);
    return v;
  };
  const Value y = in_loop ? Scan({x}, {},
                                 [&](Values c, Values) {
                                   return ScanStep{{Sin(chain(cheap ? x : c[0]) * c[0])}, {}};
                                 },
                                 {.length = 2})
                                .carry[0]
                          : chain(x);
  g.Result("dx", Grad(y, {x})[0]);
  EXPECT_GT(g.ToProgram().text.size(), static_cast<size_t>(length) * 50);
}

TEST(EdgeCasesSize, AChainOfTwentyThousandOps) { BuildChain(20000, false, false); }
TEST(EdgeCasesSize, AChainOfTwentyThousandOpsInALoop) { BuildChain(20000, true, false); }
TEST(EdgeCasesSize, AChainOfTwentyThousandCheapOpsInALoop) { BuildChain(20000, true, true); }

TEST(EdgeCasesSize, TwoThousandCapturedValues) {
  const auto build = [](int64_t count) {
    Graph g("captured");
    const Value x = g.Parameter("x", kScalar);
    Values weights;
    for (int64_t i = 0; i < count; ++i) weights.push_back(g.Parameter("w", kScalar));
    const Value y = Scan({x}, {},
                         [&](Values c, Values) {
                           Value v = c[0];
                           for (Value w : weights) v = Sin(v * w);
                           return ScanStep{{v}, {}};
                         },
                         {.length = 3})
                        .carry[0];
    for (Value grad : Grad(y, weights)) g.Result("dw", grad);
    EXPECT_GT(g.ToProgram().text.size(), static_cast<size_t>(count) * 100);
  };
  const double few = Seconds([&] { build(500); }), many = Seconds([&] { build(2000); });
  EXPECT_LT(many, 12 * few + 0.1) << few << " s for 500, " << many << " s for 2000";
}

TEST(EdgeCasesSize, TwoHundredNestedCalls) {
  Graph g("calls");
  Function f = DefineFunction(g, {kScalar}, [](Values in) { return Values{Sin(in[0])}; });
  for (int i = 0; i < 200; ++i)
    f = DefineFunction(g, {kScalar}, [&](Values in) { return Values{Sin(Call(f, in)[0])}; });
  const Value x = g.Parameter("x", kScalar);
  const Value y = Call(f, {x})[0];
  g.Result("y", y);
  g.Result("dx", Grad(y, {x})[0]);
  EXPECT_GT(g.ToProgram().text.size(), 200u * 100u);
  double value = 0.5, slope = 1;
  for (int i = 0; i < 201; ++i) slope *= std::cos(value), value = std::sin(value);
  EXPECT_NEAR(ValuesOf(g, {0.5})[1], slope, 1e-12);
}

Value NestedScans(Value x, Value outer, int depth) {
  if (depth == 0) return Sin(x) * outer;
  return Scan({x}, {},
              [&](Values c, Values) {
                return ScanStep{{Tanh(NestedScans(c[0], outer, depth - 1))}, {}};
              },
              {.length = 1})
      .carry[0];
}

Value NestedRemats(Value x, Value outer, int depth) {
  if (depth == 0) return Sin(x) * outer;
  return Remat({x},
               [&](Values in) { return Values{Tanh(NestedRemats(in[0], outer, depth - 1))}; })[0];
}

TEST(EdgeCasesSize, FiftyNestedRegions) {
  for (const auto nest : {NestedScans, NestedRemats}) {
    Graph g("nested");
    const Value x = g.Parameter("x", kScalar), w = g.Parameter("w", kScalar);
    const Value y = nest(x, w, 50);
    for (Value grad : Grad(y, {x, w})) g.Result("grad", grad);
    double value = std::sin(0.5) * 2, slope = std::cos(0.5) * 2;
    for (int i = 0; i < 50; ++i) value = std::tanh(value), slope *= 1 - value * value;
    EXPECT_NEAR(ValuesOf(g, {0.5, 2})[0], slope, 1e-12);
    EXPECT_LT(g.ToProgram().text.size(), 4000000u);
  }
}

}  // namespace
}  // namespace ulmus::graph
