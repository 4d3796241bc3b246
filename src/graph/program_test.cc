// The text of a program: deterministic, named once, free of dead code, and pointing back to the C++
// that made it.
#include <gtest/gtest.h>

#include <set>

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::graph {
namespace {

const TensorType kRow{DType::kF32, {4}};
const Mesh kMesh({{"data", 1}, {"fsdp", 4}, {"tensor", 2}});
const AxisRules kRules = {
    {"batch", {"data", "fsdp"}}, {"embed", {"fsdp"}}, {"mlp", {"tensor"}}, {"layers", {}}};

Program ScannedProgram() {
  Graph g("scanned", kMesh, kRules);
  const std::string weight_axes[] = {"layers", "embed", "mlp"}, x_axes[] = {"batch", ""};
  const Sharding weights = g.ShardingFor(weight_axes, Loc::current());
  const Value w = g.Parameter("w", {DType::kF32, {3, 8, 8}}, weights);
  const Value x = g.Parameter("x", {DType::kF32, {16, 8}}, g.ShardingFor(x_axes, Loc::current()));
  const Value y =
      Scan({x}, {w}, [](Values c, Values layer) {
        Scope scope(c[0].graph(), "layer");
        return ScanStep{{Remat({c[0], layer[0]},
                               [](Values in) {
                                 return Values{ShardAs(Tanh(Dot(in[0], in[1])), {"batch", ""})};
                               })},
                        {}};
      }).carry[0];
  const Value loss = ReduceSum(Square(y), {0, 1});
  g.Result("loss", loss);
  g.Result("w", w - Grad(loss, {w})[0] * 0.1, weights, w);
  return g.ToProgram();
}

TEST(Program, SameGraphGivesTheSameBytes) {
  EXPECT_EQ(ScannedProgram().text, ScannedProgram().text);
}

TEST(Program, EveryNameIsDefinedOnce) {
  const std::string text = ScannedProgram().text;
  // A definition is a name before " = ", ":<count> = " or ": tensor<" (results, loop carries,
  // region and function parameters).
  std::multiset<std::string> names;
  for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1)) {
    const size_t end = text.find_first_not_of("0123456789", at + 1);
    size_t next = end;
    if (text[end] == ':') next = text.find_first_not_of("0123456789", end + 1);
    if (text.compare(end, 9, ": tensor<") == 0 || text.compare(next, 3, " = ") == 0)
      names.insert(text.substr(at, end - at));
  }
  EXPECT_GT(names.size(), 50u);
  for (const std::string& name : names) EXPECT_EQ(names.count(name), 1u) << name;
}

TEST(Program, DeclaresArgumentsResultsShardingsAndDonation) {
  const Program program = ScannedProgram();
  ASSERT_EQ(program.arguments.size(), 2u);
  EXPECT_EQ(program.arguments[0].donated_to, 1);
  EXPECT_EQ(program.arguments[0].sharding.ToString(), "[{}, {fsdp}, {tensor}]");
  EXPECT_EQ(program.results[1].name, "w");
  EXPECT_NE(program.text.find(R"(sdy.mesh @mesh = <["data"=1, "fsdp"=4, "tensor"=2]>)"),
            std::string::npos);
  EXPECT_NE(program.text.find("tf.aliasing_output = 1 : i32"), std::string::npos);
  EXPECT_NE(program.text.find(R"(sdy.sharding_constraint)"), std::string::npos);
}

TEST(Program, OneDeviceMentionsNoSharding) {
  Graph g("one", Mesh({{"fsdp", 1}, {"tensor", 1}}), kRules);
  g.Result("y", ShardAs(Exp(g.Parameter("x", {DType::kF32, {4, 4}})), {"batch", "mlp"}));
  EXPECT_EQ(g.ToProgram().text.find("sdy"), std::string::npos);
}

TEST(Program, OpsCarryTheLineAndScopeThatMadeThem) {
  Graph g("lines");
  const Value x = g.Parameter("x", kRow);
  Value y;
  {
    Scope outer(g, "block"), inner(g, "mlp");
    y = Tanh(x);
    const int line = __LINE__ - 1;
    g.Result("loss", ReduceSum(y, {0}));
    const Program program = g.ToProgram();
    EXPECT_NE(
        program.text.find(fmt::format(
            "stablehlo.tanh %0 : tensor<4xf32> loc(\"block/mlp\"(\"src/graph/program_test.cc\":{}:",
            line)),
        std::string::npos)
        << program.text;
  }
  EXPECT_EQ(g.ToProgram({.locations = false}).text.find("loc("), std::string::npos);
}

TEST(Program, GradientsCarryTheLineOfTheirForwardOp) {
  Graph g("lines");
  const Value x = g.Parameter("x", kRow);
  const Value loss = ReduceSum(Tanh(x), {0});
  const int line = __LINE__ - 1;
  g.Result("dx", Grad(loss, {x})[0]);
  const std::string text = g.ToProgram().text, mark = fmt::format("program_test.cc\":{}:", line);
  // tanh, 1, y * y, 1 - y * y, ct * (...), and the broadcast of the sum's cotangent
  size_t count = 0;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) ++count;
  EXPECT_GE(count, 6u) << text;
}

TEST(Program, LeavesOutWhatNoResultNeeds) {
  Graph g("dead");
  const Value x = g.Parameter("x", kRow);
  Exp(x);
  g.Result("y", Neg(x));
  const std::string text = g.ToProgram().text;
  EXPECT_EQ(text.find("exponential"), std::string::npos);
  EXPECT_NE(text.find("negate"), std::string::npos);
}

TEST(Program, FunctionsArePrintedOnceAndTheirDerivativeToo) {
  Graph g("calls");
  Value x = g.Parameter("x", kRow);
  const Value first = x;
  const Function f = DefineFunction(g, {kRow}, [](Values in) { return Values{Sin(in[0])}; });
  for (int i = 0; i < 5; ++i) x = Call(f, {x})[0];
  const Value loss = ReduceSum(x, {0});
  g.Result("loss", loss);
  g.Result("dx", Grad(loss, {first})[0]);
  const std::string text = g.ToProgram().text;
  const auto count = [&](const std::string& what) {
    size_t n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("func.func private"), 2u) << text;
  EXPECT_EQ(count("func.call"), 10u);
  EXPECT_EQ(count("stablehlo.sine"), 1u);
}

TEST(Program, KernelIsCalledOnlyOnItsPlatformAndWhenAsked) {
  const KernelDef def = {
      .name = "double",
      .portable = [](const KernelAttrs&, Values v) { return Values{v[0] + v[0]}; },
      .vjp = nullptr,
      .targets = {{"cpu", "ulmus_double"}},
  };
  Graph g("kernel");
  g.Result("y", KernelCall(def, {{"n", int64_t{3}}, {"eps", 0.5f}, {"tag", std::string("t")}},
                           {g.Parameter("x", kRow)})[0]);
  const Program kernel = g.ToProgram({.platform = "cpu", .use_kernels = true});
  EXPECT_EQ(kernel.custom_calls, std::vector<std::string>{"ulmus_double"});
  EXPECT_NE(
      kernel.text.find(R"(backend_config = {eps = 5.000000000e-01 : f32, n = 3 : i64, tag = "t"})"),
      std::string::npos)
      << kernel.text;
  for (const ProgramOptions& options :
       {ProgramOptions{.platform = "tpu", .use_kernels = true}, ProgramOptions{}}) {
    const Program portable = g.ToProgram(options);
    EXPECT_TRUE(portable.custom_calls.empty());
    EXPECT_NE(portable.text.find("stablehlo.add"), std::string::npos);
  }
}

}  // namespace
}  // namespace ulmus::graph
