#include "train/step_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "nn/olmo3/parameters.h"
#include "nn/olmo3/sharding.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::train {
namespace {

using nn::olmo3::Config;
using nn::olmo3::LayerType;
using testing::HasSubstr;

constexpr int64_t kBatch = 8, kLength = 16;
constexpr double kInf = std::numeric_limits<double>::infinity();

Config Model() {
  return {.vocab_size = 61,
          .hidden_size = 32,
          .intermediate_size = 48,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 8,
          .layer_pattern = {LayerType::kSliding, LayerType::kFull},
          .sliding_window = 5,
          .max_position_embeddings = 64,
          .vocab_multiple = 8};
}

StepOptions Options(int64_t microbatches) {
  return {.forward = {.dtype = DType::kF32, .remat = "none"},
          .global_batch = kBatch,
          .sequence_length = kLength,
          .num_microbatches = microbatches};
}

// Element i of the row-major global batch, whatever its cut into microbatches.
struct Inputs {
  std::function<double(int64_t)> token = [](int64_t i) { return (7 * i * i + 3 * i + 5) % 61; };
  std::function<bool(int64_t)> mask = [](int64_t) { return true; };
  double lr = 1e-2, added = 0, loss_limit = kInf, grad_norm_limit = kInf;
  std::function<double(int64_t, int64_t, double)> weight = [](int64_t, int64_t, double w) {
    return w;
  };
};

std::vector<HostTensor> Arguments(const Program& program, const Inputs& inputs) {
  std::vector<HostTensor> arguments;
  int64_t tensor = 0;
  for (const ProgramValue& value : program.arguments) {
    HostTensor t(value.type);
    const bool norm = value.name.find("norm") != std::string::npos;
    const bool weight = value.name.starts_with("model.") || value.name.starts_with("lm_head");
    const RandomStream stream(1, 0, "test", value.name);
    for (int64_t i = 0; i < t.num_elements(); ++i) {
      double x = 0;
      if (weight)
        x = inputs.weight(tensor, i,
                          norm ? 1 : 0.2 * (UniformAt(stream, static_cast<uint64_t>(i)) - 0.5));
      if (value.name == "tokens") x = inputs.token(i);
      if (value.name == "loss_mask") x = inputs.mask(i) ? 1 : 0;
      if (value.name == "lr") x = inputs.lr;
      if (value.name == "added_count") x = inputs.added;
      if (value.name == "loss_limit") x = inputs.loss_limit;
      if (value.name == "grad_norm_limit") x = inputs.grad_norm_limit;
      t.Set(i, x);
    }
    ++tensor;
    arguments.push_back(std::move(t));
  }
  return arguments;
}

struct Ran {
  std::vector<HostTensor> before, results;
  double metric(int64_t index) const { return results[static_cast<size_t>(index)].Get(0); }
};

Ran RunStep(const StepOptions& options, const Inputs& inputs, const Mesh& mesh = {}) {
  const Config model = Model();
  const auto program = StepProgram(model, options, mesh, nn::olmo3::DefaultRules(model, mesh));
  EXPECT_TRUE(program.ok()) << program.status().message();
  const auto client = pjrt::SharedDefaultClient(mesh.num_devices());
  EXPECT_TRUE(client.ok()) << client.status().message();
  Ran ran{.before = Arguments(*program, inputs), .results = {}};
  auto results = pjrt::RunOnce(**client, *program, ran.before);
  EXPECT_TRUE(results.ok()) << results.status().message();
  ran.results = *std::move(results);
  return ran;
}

bool Installed() { return pjrt::SharedDefaultClient(1).ok(); }
#define SKIP_WITHOUT_PLUGIN() \
  if (!Installed()) GTEST_SKIP() << "no CPU plugin is installed; run `make setup`"

// Largest difference over first moments, a tenth of the clipped gradients, relative to the largest
// element of the tensor. Weights would not do: Adam's first step is the sign of the gradient.
double Difference(const std::vector<HostTensor>& a, const std::vector<HostTensor>& b) {
  double worst = 0;
  for (size_t i = StepMetric::kNum + 1; i < a.size(); i += kTensorsPerParameter) {
    double scale = 1e-30, difference = 0;
    for (int64_t e = 0; e < a[i].num_elements(); ++e) {
      scale = std::max(scale, std::fabs(a[i].Get(e)));
      difference = std::max(difference, std::fabs(a[i].Get(e) - b[i].Get(e)));
    }
    worst = std::max(worst, difference / scale);
  }
  return worst;
}

// Ten per cent of the targets in the first half of the batch, ninety in the second.
bool UnevenMask(int64_t i) { return i < kBatch * kLength / 2 ? i % 10 == 1 : i % 10 != 1; }

TEST(StepProgram, SameForAnyNumberOfShardsAndMicrobatches) {
  SKIP_WITHOUT_PLUGIN();
  Inputs inputs;
  inputs.mask = UnevenMask;
  const Ran one = RunStep(Options(1), inputs);
  EXPECT_EQ(one.metric(StepMetric::kApplied), 1);
  EXPECT_GT(one.metric(StepMetric::kGradNorm), 0.1);
  const struct {
    int64_t data, fsdp, tensor, microbatches;
  } cases[] = {{1, 1, 1, 2}, {1, 1, 1, 4}, {1, 4, 1, 2}, {8, 1, 1, 1}, {2, 2, 2, 2}};
  for (const auto& c : cases) {
    const Mesh mesh({{"data", c.data}, {"fsdp", c.fsdp}, {"tensor", c.tensor}, {"context", 1}});
    const Ran other = RunStep(Options(c.microbatches), inputs, mesh);
    const std::string what = fmt::format("{} microbatches on {}", c.microbatches, mesh.ToString());
    for (const int64_t metric : {StepMetric::kLoss, StepMetric::kZLoss, StepMetric::kGradNorm})
      EXPECT_NEAR(other.metric(metric), one.metric(metric), 2e-6 * one.metric(metric)) << what;
    EXPECT_EQ(other.metric(StepMetric::kCount), one.metric(StepMetric::kCount)) << what;
    EXPECT_LT(Difference(one.results, other.results), 2e-5) << what;
  }
}

// All targets of one device's share, and of one microbatch, are masked.
TEST(StepProgram, AnEmptyShareWeighsNothing) {
  SKIP_WITHOUT_PLUGIN();
  Inputs inputs;
  inputs.mask = [](int64_t i) { return i >= kBatch * kLength / 2; };
  const Ran one = RunStep(Options(1), inputs);
  const Ran other =
      RunStep(Options(2), inputs, Mesh({{"data", 2}, {"fsdp", 1}, {"tensor", 1}, {"context", 1}}));
  EXPECT_EQ(one.metric(StepMetric::kCount), kBatch / 2 * (kLength - 1));
  EXPECT_NEAR(other.metric(StepMetric::kLoss), one.metric(StepMetric::kLoss), 1e-5);
  EXPECT_LT(Difference(one.results, other.results), 2e-5);
}

void ExpectStateKept(const Ran& ran) {
  EXPECT_EQ(ran.metric(StepMetric::kApplied), 0);
  EXPECT_EQ(ran.metric(StepMetric::kUpdateNorm), 0);
  for (size_t i = StepMetric::kNum; i < ran.results.size(); ++i) {
    const auto got = ran.results[i].bytes(), old = ran.before[i - StepMetric::kNum].bytes();
    EXPECT_TRUE(std::ranges::equal(got, old)) << "state tensor " << i - StepMetric::kNum;
  }
}

TEST(StepProgram, ABatchWithoutTargetsChangesNothing) {
  SKIP_WITHOUT_PLUGIN();
  Inputs inputs;
  inputs.mask = [](int64_t) { return false; };
  const Ran ran = RunStep(Options(2), inputs);
  EXPECT_EQ(ran.metric(StepMetric::kLoss), 0);
  EXPECT_EQ(ran.metric(StepMetric::kCount), 0);
  ExpectStateKept(ran);
}

TEST(StepProgram, ASkippedStepKeepsEveryBit) {
  SKIP_WITHOUT_PLUGIN();
  Inputs above;
  above.loss_limit = 1;
  ExpectStateKept(RunStep(Options(1), above));
  Inputs poisoned;
  poisoned.weight = [](int64_t tensor, int64_t i, double w) {
    return tensor == 3 && i == 0 ? std::nan("") : w;
  };
  const Ran ran = RunStep(Options(1), poisoned);
  EXPECT_TRUE(std::isnan(ran.metric(StepMetric::kLoss)));
  ExpectStateKept(ran);
}

// Targets that OLMo-core adds back for filtered instances lower the loss and nothing else.
TEST(StepProgram, AddedTargetsOnlyDivide) {
  SKIP_WITHOUT_PLUGIN();
  const Ran plain = RunStep(Options(1), {});
  Inputs inputs;
  inputs.added = kBatch * (kLength - 1);  // as many again
  const Ran added = RunStep(Options(1), inputs);
  EXPECT_NEAR(added.metric(StepMetric::kLoss), plain.metric(StepMetric::kLoss) / 2, 1e-6);
  EXPECT_NEAR(added.metric(StepMetric::kGradNorm), plain.metric(StepMetric::kGradNorm) / 2, 1e-6);
  EXPECT_EQ(added.metric(StepMetric::kCount), plain.metric(StepMetric::kCount));
}

TEST(StepProgram, OnlyTheEmbeddingKeepsItsSizeWithoutGradients) {
  SKIP_WITHOUT_PLUGIN();
  // Token 60 occurs nowhere: its row has no gradient, but a row of the head always has.
  Inputs inputs;
  inputs.token = [](int64_t i) { return i % 59; };
  const Ran ran = RunStep(Options(1), inputs);
  const HostTensor &before = ran.before[0], &after = ran.results[StepMetric::kNum];
  for (int64_t i = 60 * 32; i < 61 * 32; ++i) EXPECT_EQ(after.Get(i), before.Get(i));
  EXPECT_NE(after.Get(0), before.Get(0));
}

TEST(StepProgram, WhatDoesNotDivideIsRefusedWithTheEquation) {
  const Config model = Model();
  const auto message = [&](const StepOptions& options, const Mesh& mesh = {}) {
    const auto program = StepProgram(model, options, mesh, nn::olmo3::DefaultRules(model, mesh));
    EXPECT_EQ(program.status().code(), StatusCode::kInvalidArgument);
    return program.status().message();
  };
  EXPECT_THAT(message(Options(3)), HasSubstr("8 instances % 3 microbatches = 2"));
  EXPECT_THAT(message(Options(0)), HasSubstr("in 0 microbatches"));
  EXPECT_THAT(message(Options(4), Mesh({{"data", 4}, {"fsdp", 1}, {"tensor", 1}, {"context", 1}})),
              HasSubstr("2 % (data=4 * fsdp=1) = 2"));
  StepOptions groups = Options(1);
  groups.groups = {{.patterns = {"model.layers.1.mlp.up_proj.weight"}}};
  EXPECT_EQ(StepProgram(model, groups, {}, nn::olmo3::DefaultRules(model, {})).ok(), true);
  groups.groups = {{.patterns = {"model.layers.7.*"}}};
  EXPECT_THAT(message(groups), HasSubstr("matches none of"));
  StepOptions remat = Options(1);
  remat.forward.remat = "some";
  EXPECT_THAT(message(remat), HasSubstr("some"));
}

}  // namespace
}  // namespace ulmus::train
