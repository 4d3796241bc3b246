#include "optim/adamw.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "graph/interpret.h"
#include "graph/ops.h"
#include "optim/clip.h"
#include "optim/testing.h"

namespace ulmus::optim {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;

struct State {
  std::vector<double> p, m, v;
  double count = 0;
};

struct Rates {
  double lr = 0.01, weight_decay = 0.1, lr_factor = 1;
};

RefTensor F32(Shape shape, std::vector<double> data) {
  RefTensor t{{DType::kF32, std::move(shape)}, std::move(data)};
  for (double& x : t.data) x = RoundTo(DType::kF32, x);
  return t;
}

struct OneStep {
  AdamWOptions options = {};
  DType moments = DType::kF32;
  bool increment = true;

  State operator()(const State& old, const std::vector<double>& grad, bool apply,
                   const Rates& rates = {}) const {
    const auto n = static_cast<int64_t>(old.p.size());
    Graph g("adamw");
    const TensorType type{DType::kF32, {n}}, moment{moments, {n}}, scalar{DType::kF32, {}};
    const AdamWTensor tensor{g.Parameter("p", type), g.Parameter("m", moment),
                             g.Parameter("v", moment)};
    const Value gradient = g.Parameter("g", type);
    const AdamWStep step{g.Parameter("lr", scalar), g.Parameter("count", scalar),
                         g.Parameter("apply", {DType::kBool, {}})};
    const AdamWTensor next =
        AdamWUpdate(tensor, gradient, step, rates.weight_decay, rates.lr_factor, options);
    g.Result("p", next.weight);
    g.Result("m", next.exp_avg);
    g.Result("v", next.exp_avg_sq);
    g.Result("count", NextCount(step, increment));
    const std::vector<RefTensor> arguments = {F32({n}, old.p),
                                              {moment, old.m},
                                              {moment, old.v},
                                              F32({n}, grad),
                                              F32({}, {rates.lr}),
                                              F32({}, {old.count}),
                                              {{DType::kBool, {}}, {apply ? 1.0 : 0.0}}};
    const auto r = Interpret(g, arguments);
    return {r[0].data, r[1].data, r[2].data, r[3].data[0]};
  }
};

void ExpectClose(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance * std::fabs(want[i])) << what << "[" << i << "]";
}

TEST(AdamW, EqualsOlmoCoreStepByStep) {
  const auto golden = Golden()["adamw"];
  for (const auto& c : golden["cases"]) {
    const OneStep step{.increment = c["step_increment_bugfix"]};
    State state{golden["params0"], {0, 0, 0}, {0, 0, 0}};
    for (size_t i = 0; i < c["steps"].size(); ++i) {
      const bool skipped = i == 1 && c["second_step_skipped"].get<bool>();
      state = step(state, golden["grads"][i], !skipped);
      const auto& want = c["steps"][i];
      const std::string what = fmt::format("step {}", i + 1);
      // The correction 1 - 0.9^t carries t roundings of 2^-24 times 10.
      ExpectClose(state.p, want["p"], 3e-7, what + " p");
      ExpectClose(state.m, want["m"], 2e-7, what + " m");
      ExpectClose(state.v, want["v"], 2e-7, what + " v");
      EXPECT_EQ(state.count, want["step"].get<double>());
    }
  }
}

// B27: ten steps with the fourth left out, against the documented rule in double.
TEST(AdamW, TheCountStandsStillOnASkippedStep) {
  State state{{0.5}, {0}, {0}};
  double p = 0.5, m = 0, v = 0, t = 0;
  for (int i = 1; i <= 10; ++i) {
    const double g = RoundTo(DType::kF32, std::sin(i));
    state = OneStep{}(state, {g}, i != 4);
    if (i != 4) {
      p *= 1 - 0.01 * 0.1;
      m += 0.1 * (g - m);
      v = v * 0.95 + 0.05 * g * g;
      ++t;
      p -= 0.01 / (1 - std::pow(0.9, t)) * m /
           (std::sqrt(v) / std::sqrt(1 - std::pow(0.95, t)) + 1e-8);
    }
    EXPECT_NEAR(state.p[0], p, 2e-6) << i;
    EXPECT_EQ(state.count, t) << i;
  }
}

TEST(AdamW, ASkippedStepKeepsEveryBitWhateverTheGradient) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const State old{{RoundTo(DType::kF32, 0.1), -2}, {0.5, -0.25}, {0.125, 1}, 7};
  const State next = OneStep{}(old, {nan, std::numeric_limits<double>::infinity()}, false);
  EXPECT_EQ(next.p, old.p);
  EXPECT_EQ(next.m, old.m);
  EXPECT_EQ(next.v, old.v);
  EXPECT_EQ(next.count, 7);
}

// B32: the embedding of OLMo 3 has decay 0: without a gradient not one bit moves. All else shrinks.
TEST(AdamW, DecayWithoutGradient) {
  const State old{{RoundTo(DType::kF32, 0.1), -3}, {0, 0}, {0, 0}};
  EXPECT_EQ(OneStep{}(old, {0, 0}, true, {.weight_decay = 0}).p, old.p);
  const State next = OneStep{}(old, {0, 0}, true);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(next.p[i], old.p[i] * (1 - 0.01 * 0.1), 2e-7);
  const State slower = OneStep{}(old, {0, 0}, true, {.lr_factor = 0.5});
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(slower.p[i], old.p[i] * (1 - 0.005 * 0.1), 2e-7);
}

// MaxText's other rule, in double: the corrections are folded into the decay rates.
TEST(AdamW, PaxFoldsTheCorrections) {
  const OneStep step{.options = {.rule = AdamRule::kAdamPax}};
  State state{{1, -2}, {0, 0}, {0, 0}};
  std::vector<double> p = state.p, m = {0, 0}, v = {0, 0};
  for (int t = 1; t <= 5; ++t) {
    const std::vector<double> g = {RoundTo(DType::kF32, std::sin(t)),
                                   RoundTo(DType::kF32, std::cos(t))};
    state = step(state, g, true);
    const auto folded = [&](double b) {
      return b * (1 - std::pow(b, t - 1)) / (1 - std::pow(b, t));
    };
    const double b1 = folded(0.9), b2 = folded(0.95);
    for (size_t i = 0; i < 2; ++i) {
      m[i] = b1 * m[i] + (1 - b1) * g[i];
      v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
      p[i] -= 0.01 * (m[i] / (std::sqrt(v[i]) + 1e-8) + 0.1 * p[i]);
    }
    ExpectClose(state.p, p, 1e-5, "p");
  }
}

TEST(AdamW, Bf16MomentsLoseSmallChanges) {
  const OneStep step{.moments = DType::kBF16};
  // 1 + 0.1 * (0.99 - 1) = 0.999: between 0.99609375 and 1, nearer to 1.
  const State next = step({{1}, {1}, {1}}, {0.99}, true);
  EXPECT_EQ(next.m[0], 1);
  EXPECT_NE(OneStep{}({{1}, {1}, {1}}, {0.99}, true).m[0], 1);
}

double Factor(double norm, ClipRule rule) {
  Graph g("clip");
  const Value n = g.Parameter("n", {DType::kF32, {}});
  g.Result("factor", ClipFactor(n, 1, rule));
  return Interpret(g, std::vector<RefTensor>{F32({}, {norm})}, {.round = false})[0].data[0];
}

TEST(Clip, FactorsOfBothRulesByHand) {
  const double eps = RoundTo(DType::kF32, 1e-6);  // constants are f32
  EXPECT_DOUBLE_EQ(Factor(4, ClipRule::kOlmoCore), 1 / (4 + eps));
  EXPECT_DOUBLE_EQ(Factor(0.5, ClipRule::kOlmoCore), 1);
  EXPECT_DOUBLE_EQ(Factor(1, ClipRule::kOlmoCore), 1 / (1 + eps));
  EXPECT_DOUBLE_EQ(Factor(4, ClipRule::kMaxText), 0.25);
  EXPECT_DOUBLE_EQ(Factor(1, ClipRule::kMaxText), 1);
  EXPECT_DOUBLE_EQ(Factor(0.999, ClipRule::kMaxText), 1);
  EXPECT_DOUBLE_EQ(Factor(4, ClipRule::kOff), 1);
}

TEST(Clip, NormIsOverAllTensors) {
  Graph g("norm");
  const Value a = g.Parameter("a", {DType::kF32, {2}}),
              b = g.Parameter("b", {DType::kBF16, {1, 2}});
  g.Result("norm", GlobalNorm(g, {a, b}));
  g.Result("empty", GlobalNorm(g, {}));
  const std::vector<RefTensor> inputs = {F32({2}, {1, 2}), {{DType::kBF16, {1, 2}}, {-4, 10}}};
  const auto results = Interpret(g, inputs);
  EXPECT_EQ(results[0].data[0], 11);
  EXPECT_EQ(results[1].data[0], 0);
}

TEST(StepApplies, WantsFiniteValuesWithinTheLimits) {
  Graph g("applies");
  std::vector<Value> p;
  for (const char* name : {"loss", "norm", "loss_limit", "norm_limit"})
    p.push_back(g.Parameter(name, {DType::kF32, {}}));
  g.Result("apply", StepApplies(p[0], p[1], p[2], p[3]));
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const auto applies = [&](double loss, double norm, double loss_limit, double norm_limit) {
    const std::vector<RefTensor> inputs = {F32({}, {loss}), F32({}, {norm}), F32({}, {loss_limit}),
                                           F32({}, {norm_limit})};
    return Interpret(g, inputs)[0].data[0] == 1;
  };
  EXPECT_TRUE(applies(3, 1, inf, inf));
  EXPECT_TRUE(applies(3, 1, 3, 1));
  EXPECT_FALSE(applies(3.1, 1, 3, 1));
  EXPECT_FALSE(applies(3, 1.1, 3, 1));
  EXPECT_FALSE(applies(nan, 1, inf, inf));
  EXPECT_FALSE(applies(3, nan, inf, inf));
  EXPECT_FALSE(applies(inf, 1, inf, inf));
  EXPECT_FALSE(applies(3, 1, nan, inf));
}

}  // namespace
}  // namespace ulmus::optim
