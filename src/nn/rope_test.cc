// Rotary tables against numbers computed in double by the published formulas, written out here
// once more.
#include "nn/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "graph/interpret.h"
#include "graph/ops.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;

constexpr double kTheta = 500000;

TEST(Rope, PlainFrequenciesOfAllHeadWidths) {
  for (const int64_t h : {8, 16, 32, 128, 256}) {
    const RopeFrequencies f = ComputeRopeFrequencies(kTheta, h);
    ASSERT_EQ(f.inverse.size(), static_cast<size_t>(h / 2));
    EXPECT_EQ(f.scale, 1);
    for (int64_t j = 0; j < h / 2; ++j) {
      const double want =
          std::exp(-std::log(kTheta) * 2 * static_cast<double>(j) / static_cast<double>(h));
      EXPECT_NEAR(f.inverse[static_cast<size_t>(j)], want, 6e-8 * want) << h << " " << j;
    }
  }
}

// Values of the published table for h = 128.
TEST(Rope, YarnOfThePublishedModels) {
  const RopeFrequencies plain = ComputeRopeFrequencies(kTheta, 128),
                        yarn = ComputeRopeFrequencies(kTheta, 128, Yarn{});
  struct Row {
    size_t j;
    double plain, yarn;
  };
  for (const Row& row : {Row{0, 1, 1},
                         {1, 0.814617217, 0.814617217},
                         {17, 0.0306345206, 0.0306345206},
                         {18, 0.0249554086, 0.0249554086},
                         {19, 0.0203291047, 0.0192827545},
                         {20, 0.0165604409, 0.0148556903},
                         {25, 0.00594073068, 0.00380032021},
                         {30, 0.0021311196, 0.00081483979},
                         {34, 0.000938473851, 0.000165613033},
                         {35, 0.000764496974, 9.55621217e-05},
                         {63, 2.4551407e-06, 3.06892588e-07}}) {
    EXPECT_NEAR(plain.inverse[row.j], row.plain, 1e-7 * row.plain) << row.j;
    EXPECT_NEAR(yarn.inverse[row.j], row.yarn, 2e-7 * row.yarn) << row.j;
  }
  EXPECT_DOUBLE_EQ(yarn.scale, 1.2079441541679836);
}

// The range by definition: how often frequency j turns within the original context.
TEST(Rope, YarnRangesOfAllHeadWidths) {
  for (const int64_t h : {8, 16, 32, 128, 256}) {
    const double half = static_cast<double>(h) / 2;
    const auto turns = [&](double j) {
      return 8192 * std::pow(kTheta, -j / half) / (2 * std::numbers::pi);
    };
    const YarnRange range = ComputeYarnRange(Yarn{}, kTheta, h);
    // low: the last j that turns at least 32 times; high: the first that turns at most once.
    EXPECT_GE(turns(range.low), 32) << h;
    EXPECT_LT(turns(range.low + 1), 32) << h;
    EXPECT_LE(turns(range.high), 1) << h;
    EXPECT_GT(turns(range.high - 1), 1) << h;
  }
  const YarnRange wide = ComputeYarnRange(Yarn{}, kTheta, 256);
  EXPECT_EQ(wide.low, 36);
  EXPECT_EQ(wide.high, 70);
  const YarnRange usual = ComputeYarnRange(Yarn{}, kTheta, 128);
  EXPECT_EQ(usual.low, 18);
  EXPECT_EQ(usual.high, 35);
}

TEST(Rope, YarnTablesBlendByTheRamp) {
  for (const int64_t h : {8, 16, 32, 128, 256}) {
    for (const double factor : {2.0, 8.0, 40.0}) {
      const Yarn yarn{.factor = factor};
      const RopeFrequencies f = ComputeRopeFrequencies(kTheta, h, yarn);
      const double width = static_cast<double>(h), log2t = 2 * std::log(kTheta);
      const double low = std::floor(width * std::log(8192 / (64 * std::numbers::pi)) / log2t),
                   high = std::ceil(width * std::log(8192 / (2 * std::numbers::pi)) / log2t);
      for (int64_t j = 0; j < h / 2; ++j) {
        const double inv = std::pow(kTheta, -2 * static_cast<double>(j) / width);
        const double ramp =
            std::min(1.0, std::max(0.0, (static_cast<double>(j) - low) / (high - low)));
        const double want = inv * (1 - ramp) + inv / factor * ramp;
        EXPECT_NEAR(f.inverse[static_cast<size_t>(j)], want, 1e-7 * want)
            << "h " << h << " factor " << factor << " j " << j;
      }
    }
  }
}

TEST(Rope, DegenerateRangesStayFinite) {
  struct Case {
    int64_t original_context;
    double beta_fast, beta_slow;
  };
  // Shorter than one turn; both ends at one place; all frequencies above the upper end; huge.
  for (const Case& c : {Case{1, 32, 1}, Case{4, 32, 1}, Case{8192, 4, 4}, Case{8192, 1e9, 1},
                        Case{int64_t{1} << 40, 32, 1}, Case{8192, 32, 1e-30}}) {
    for (const int64_t h : {2, 8, 16, 128}) {
      for (const YarnClamp clamp : {YarnClamp::kHalf, YarnClamp::kFull}) {
        const Yarn yarn{.factor = 8,
                        .original_context = c.original_context,
                        .beta_fast = c.beta_fast,
                        .beta_slow = c.beta_slow,
                        .clamp = clamp};
        const RopeFrequencies plain = ComputeRopeFrequencies(kTheta, h),
                              f = ComputeRopeFrequencies(kTheta, h, yarn);
        for (size_t j = 0; j < f.inverse.size(); ++j) {
          EXPECT_LE(f.inverse[j], plain.inverse[j] * (1 + 1e-6f)) << c.original_context << " " << h;
          EXPECT_GE(f.inverse[j], plain.inverse[j] / 8 * (1 - 1e-6f))
              << c.original_context << " " << h;
        }
      }
    }
  }
}

TEST(Rope, ClampsDifferOnlyWhereTheHeadIsTooNarrow) {
  Yarn half{.original_context = 1 << 17}, full = half;
  full.clamp = YarnClamp::kFull;
  // 8 ln(2^17 / (2 pi)) / (2 ln theta) = 3.03
  EXPECT_EQ(ComputeYarnRange(half, kTheta, 8).high, 3);
  EXPECT_EQ(ComputeYarnRange(full, kTheta, 8).high, 4);
  EXPECT_EQ(ComputeRopeFrequencies(kTheta, 128, Yarn{}).inverse,
            ComputeRopeFrequencies(kTheta, 128, Yarn{.clamp = YarnClamp::kFull}).inverse);
}

// cos and sin at single positions from the published table.
TEST(Rope, TablesAtPublishedPositions) {
  Graph graph("rope");
  const Value positions = graph.Parameter("positions", {DType::kI32, {1, 4}});
  for (const bool yarn : {false, true}) {
    const RopeTable table = MakeRopeTable(
        positions,
        ComputeRopeFrequencies(kTheta, 128, yarn ? std::optional<Yarn>(Yarn{}) : std::nullopt));
    graph.Result(yarn ? "yarn_cos" : "cos", table.cos);
    graph.Result(yarn ? "yarn_sin" : "sin", table.sin);
  }
  const RefTensor at{{DType::kI32, {1, 4}}, {1, 100, 8191, 65535}};
  const auto got = Interpret(graph, std::vector<RefTensor>{at}, {.round = true});
  struct Row {
    size_t row, j;
    double cos, sin, yarn_cos, yarn_sin;
  };
  for (const Row& row : {Row{0, 0, 0.5403023, 0.8414710, 0.6526550, 1.0164500},
                         Row{0, 26, 0.9999883, 0.0048394, 1.2079393, 0.0034387},
                         Row{1, 18, -0.7984670, 0.6020386, -0.9645035, 0.7272290},
                         Row{1, 26, 0.8851676, 0.4652722, 1.1593291, 0.3392421},
                         Row{2, 18, -0.9788084, -0.2047781, -1.1823459, -0.2473606},
                         Row{2, 63, 0.9997978, 0.0201087, 1.2079403, 0.0030365},
                         Row{3, 63, 0.9870839, 0.1602043, 1.2076999, 0.0242928}}) {
    const size_t i = row.row * 64 + row.j;
    // Angles are f32 products: at position 8191 an angle of 204 has an error of 8e-6.
    EXPECT_NEAR(got[0].data[i], row.cos, 2e-5) << row.row << " " << row.j;
    EXPECT_NEAR(got[1].data[i], row.sin, 2e-5) << row.row << " " << row.j;
    EXPECT_NEAR(got[2].data[i], row.yarn_cos, 2e-5) << row.row << " " << row.j;
    EXPECT_NEAR(got[3].data[i], row.yarn_sin, 2e-5) << row.row << " " << row.j;
  }
}

// Element j pairs with j + H/2, and scores depend on distances alone.
TEST(Rope, HalfRotationKeepsRelativePositions) {
  constexpr int64_t kT = 5, kH = 8;
  Graph graph("rotate");
  const Value x = graph.Parameter("x", {DType::kF32, {1, kT, 1, kH}}),
              positions = graph.Parameter("positions", {DType::kI32, {1, kT}});
  graph.Result("y", ApplyRope(x, MakeRopeTable(positions, ComputeRopeFrequencies(kTheta, kH))));
  RefTensor x_value = RefTensor::Zeros(x.type()), p = RefTensor::Zeros(positions.type());
  for (int64_t t = 0; t < kT; ++t) {
    p.data[static_cast<size_t>(t)] = static_cast<double>(3 * t);
    for (int64_t j = 0; j < kH; ++j)
      x_value.data[static_cast<size_t>(t * kH + j)] = std::sin(static_cast<double>(j + 1));
  }
  const auto got = Interpret(graph, std::vector<RefTensor>{x_value, p}, {.round = false});
  const auto y = [&](int64_t t, int64_t j) { return got[0].data[static_cast<size_t>(t * kH + j)]; };
  for (int64_t j = 0; j < kH / 2; ++j) {
    const double a = std::sin(static_cast<double>(j + 1)),
                 b = std::sin(static_cast<double>(j + 1 + kH / 2)),
                 angle = 6 * std::pow(kTheta, -static_cast<double>(j) / (kH / 2));
    EXPECT_NEAR(y(2, j), a * std::cos(angle) - b * std::sin(angle), 1e-6);
    EXPECT_NEAR(y(2, j + kH / 2), b * std::cos(angle) + a * std::sin(angle), 1e-6);
  }
  const auto score = [&](int64_t s, int64_t t) {
    double sum = 0;
    for (int64_t j = 0; j < kH; ++j) sum += y(s, j) * y(t, j);
    return sum;
  };
  EXPECT_NEAR(score(0, 2), score(2, 4), 1e-6);
  EXPECT_NEAR(score(0, 1), score(3, 4), 1e-6);
}

TEST(Rope, RotationInTheActivationsDtypeRoundsTheTable) {
  const auto rotated = [](RotationPrecision precision, std::optional<Yarn> yarn) {
    Graph graph("rotate");
    const Value x = graph.Parameter("x", {DType::kBF16, {1, 3, 1, 8}}),
                positions = graph.Parameter("positions", {DType::kI32, {1, 3}});
    graph.Result(
        "y",
        ApplyRope(x, MakeRopeTable(positions, ComputeRopeFrequencies(kTheta, 8, yarn)), precision));
    RefTensor ones = RefTensor::Zeros(x.type());
    for (double& v : ones.data) v = 1;
    const RefTensor at{positions.type(), {1, 2, 3}};
    return Interpret(graph, std::vector<RefTensor>{ones, at})[0].data;
  };
  EXPECT_NE(rotated(RotationPrecision::kF32, {}), rotated(RotationPrecision::kActivation, {}));
  EXPECT_EQ(rotated(RotationPrecision::kF32, Yarn{}),
            rotated(RotationPrecision::kActivation, Yarn{}))
      << "YaRN rotates in f32 everywhere";
}

}  // namespace
}  // namespace ulmus::nn
