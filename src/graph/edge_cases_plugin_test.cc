// What only a compiler can confirm about unusual programs: literals keep their bits, parameters may
// be returned as they are or trade buffers, regions may return what they were given.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "graph/autodiff.h"
#include "graph/interpret.h"
#include "graph/ops.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::graph {
namespace {

class EdgeCasesPlugin : public testing::TestWithParam<pjrt::PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed (make setup)";
  }

  static std::vector<HostTensor> Run(const Graph& graph, const std::vector<HostTensor>& arguments) {
    const Result<pjrt::Client*> client = pjrt::SharedClient(GetParam(), graph.mesh().num_devices());
    EXPECT_TRUE(client.ok()) << client.error().ToString();
    if (!client.ok()) return {};
    Result<std::vector<HostTensor>> results = pjrt::RunOnce(**client, graph.ToProgram(), arguments);
    EXPECT_TRUE(results.ok()) << results.error().ToString() << "\n"
                              << graph.ToProgram({.locations = false}).text;
    return results.ok() ? *std::move(results) : std::vector<HostTensor>();
  }

  // Runs the graph on values spread over [-1, 1] (integers: 0..2) and compares all results with the
  // twin.
  static void CompareWithTwin(const Graph& graph) {
    std::vector<HostTensor> arguments;
    std::vector<RefTensor> inputs;
    for (const ProgramValue& argument : graph.arguments()) {
      RefTensor t = RefTensor::Zeros(argument.type);
      for (size_t i = 0; i < t.data.size(); ++i) {
        t.data[i] = IsFloat(argument.type.dtype)
                        ? RoundTo(argument.type.dtype,
                                  std::sin(2.3 * static_cast<double>(i + 1 + inputs.size())))
                        : static_cast<double>(i % 3);
      }
      arguments.push_back(t.ToHost());
      inputs.push_back(std::move(t));
    }
    const std::vector<HostTensor> results = Run(graph, arguments);
    const std::vector<RefTensor> twins = Interpret(graph, inputs);
    ASSERT_EQ(results.size(), twins.size());
    for (size_t k = 0; k < twins.size(); ++k) {
      for (size_t i = 0; i < twins[k].data.size(); ++i) {
        const double want = twins[k].data[i];
        // Sums of up to 64 float32 terms and XLA's polynomials.
        ASSERT_NEAR(results[k].Get(static_cast<int64_t>(i)), want,
                    5e-5 * std::max(1.0, std::fabs(want)))
            << graph.results()[k].name << ", element " << i;
      }
    }
  }
};

// Bit patterns at the edges of each dtype: zeros of both signs, subnormals, ends, infinities, NaN.
std::vector<uint64_t> EdgeBits(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return {0, 1, 1, 0, 1, 0};
    case DType::kF16:
      return {0, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfc00, 0x7c00, 0x7e00};
    case DType::kBF16:
      return {0, 0x8000, 0x0001, 0x807f, 0x7f7f, 0xff80, 0x7f80, 0x7fc0};
    case DType::kF32:
      return {0,          0x80000000, 0x00000001, 0x807fffff, 0x7f7fffff,
              0xff800000, 0x7f800000, 0x7fc00000, 0x3dcccccd};
    case DType::kF64:
      return {0,
              0x8000000000000000,
              1,
              0x800fffffffffffff,
              0x7fefffffffffffff,
              0xfff0000000000000,
              0x7ff0000000000000,
              0x7ff8000000000000,
              0x3fb999999999999a};
    default:
      return {0,
              1,
              ~uint64_t{0},
              uint64_t{1} << (8 * SizeBytes(dtype) - 1),
              ~(uint64_t{1} << (8 * SizeBytes(dtype) - 1)),
              0x20000000000001};
  }
}

HostTensor FromBits(DType dtype, const Shape& shape, const std::vector<uint64_t>& bits) {
  HostTensor t(TensorType{dtype, shape});
  const auto size = static_cast<size_t>(SizeBytes(dtype));
  for (size_t i = 0; i < bits.size(); ++i)
    std::memcpy(t.bytes().data() + i * size, &bits[i], size);  // little-endian
  return t;
}

TEST_P(EdgeCasesPlugin, ConstantsOfEveryTypeKeepTheirBits) {
  Graph g("constants");
  std::vector<HostTensor> wanted;
  const auto add = [&](HostTensor t) {
    g.Result(t.type().ToString(), Constant(g, t));
    wanted.push_back(std::move(t));
  };
  for (DType dtype : kAllDTypes) {
    const std::vector<uint64_t> bits = EdgeBits(dtype);
    const auto count = static_cast<int64_t>(bits.size());
    add(FromBits(dtype, {count}, bits));
    std::vector<uint64_t> twice = bits;
    twice.insert(twice.end(), bits.rbegin(), bits.rend());
    add(FromBits(dtype, {count, 2}, twice));
    add(FromBits(dtype, {2, 1, count}, twice));
    for (uint64_t b : bits) add(FromBits(dtype, {}, {b})), add(FromBits(dtype, {1, 1}, {b}));
  }
  const std::vector<HostTensor> results = Run(g, {});
  ASSERT_EQ(results.size(), wanted.size());
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].type(), wanted[i].type());
    for (size_t b = 0; b < results[i].bytes().size(); ++b) {
      EXPECT_EQ(results[i].bytes()[b], wanted[i].bytes()[b])
          << "constant " << i << " " << wanted[i].type().ToString() << ", byte " << b;
    }
  }
}

TEST_P(EdgeCasesPlugin, LeastAndGreatestOfSixtyFourBitIntegers) {
  Graph g("ends");
  const Value i = g.Parameter("i", {DType::kI64, {3}}), u = g.Parameter("u", {DType::kU64, {3}});
  g.Result("imin", ReduceMin(i, {0}));
  g.Result("imax", ReduceMax(i, {0}));
  g.Result("umin", ReduceMin(u, {-1}));
  g.Result("umax", ReduceMax(u, {-1}));
  CompareWithTwin(g);
}

TEST_P(EdgeCasesPlugin, ParametersReturnedAsTheyAreAndTradingBuffers) {
  const TensorType row{DType::kF32, {4}};
  Graph g("donated");
  const Value a = g.Parameter("a", row), b = g.Parameter("b", row), c = g.Parameter("c", row),
              d = g.Parameter("d", row);
  g.Result("a", a, {}, a);
  g.Result("c", c, {}, b);
  g.Result("b", b, {}, c);
  g.Result("d", d);
  g.Result("d again", d);
  g.Result("a again", a);
  CompareWithTwin(g);
}

TEST_P(EdgeCasesPlugin, ShapeOpsOfScalars) {
  Graph g("scalars");
  const Value x = g.Parameter("x", {DType::kF32, {}});
  const Value y = Pad(Transpose(DynamicUpdateSlice(DynamicSlice(x, {}, {}), x * 2.0, {}), {}), 0,
                      {}, {}),
              z = Reverse(Slice(y, {}, {}), {});
  const Value loss =
      ReduceSum(ReduceMax(Reshape(z, {1, 1}), {-1, 0}) + BroadcastInDim(z, {}, {}), {});
  g.Result("loss", loss);
  g.Result("grad", Grad(loss, {x})[0]);
  CompareWithTwin(g);
}

TEST_P(EdgeCasesPlugin, NamesWithQuotesAndSpaces) {
  Graph g("step 1/\"a\"");
  const Scope scope(g, "a \"quoted\" \\ name");
  g.Result("y", Exp(g.Parameter("x", {DType::kF32, {}})));
  CompareWithTwin(g);
}

TEST_P(EdgeCasesPlugin, RegionsThatReturnTheirInputsCapturesAndConstants) {
  const TensorType row{DType::kF32, {4}}, scalar{DType::kF32, {}};
  Graph g("identity");
  const Value x = g.Parameter("x", row), y = g.Parameter("y", row),
              n = g.Parameter("n", {DType::kI32, {}});
  const Function same =
      DefineFunction(g, {row, row}, [](Values in) { return Values{in[1], in[0], in[0]}; });
  const Values chosen = Cond(
      Compare(Cmp::kLt, n, SplatLike(n, 1)), [&] { return Values{x, y}; },
      [&] { return Values{y, ZerosLike(y)}; });
  const Values called = Call(same, {chosen[0], chosen[1]});
  const Values rerun =
      Remat({called[0], called[1]}, [](Values in) { return Values{in[1], in[0], in[1]}; });
  const ScanStep out =
      Scan({rerun[0], x, n}, {},
           [&](Values c, Values) {
             return ScanStep{{y, SplatLike(x, 0.25), c[2]}, {y, c[0], Splat(g, 1, scalar), n}};
           },
           {.length = 1, .reverse = true});
  const Value loss = ReduceSum(out.carry[0] * rerun[1] * 2.0 + Reshape(out.ys[1], {4}) * rerun[2] +
                                   Reshape(out.ys[0], {4}) * out.carry[1],
                               {0});
  g.Result("loss", loss);
  g.Result("n", out.carry[2]);
  g.Result("ns", out.ys[3]);
  for (Value grad : Grad(loss, {x, y})) g.Result("grad", grad);
  CompareWithTwin(g);
}

INSTANTIATE_TEST_SUITE_P(CpuPlugins, EdgeCasesPlugin, testing::ValuesIn(pjrt::KnownCpuPlugins()),
                         [](const auto& param_info) {
                           std::string name = param_info.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ulmus::graph
