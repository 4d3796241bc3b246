#include "train/step_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "nn/olmo3/parameters.h"
#include "nn/olmo3/sharding.h"
#include "pjrt/testing.h"

namespace ulmus::train {
namespace {

using nn::olmo3::Config;
using nn::olmo3::LayerType;
using testing::HasSubstr;

constexpr int64_t kBatch = 32, kLength = 16;
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

// A step compiled once, run on any inputs.
class CompiledStep {
 public:
  explicit CompiledStep(const StepOptions& options, const Mesh& mesh = {}) {
    const Config model = Model();
    auto program = StepProgram(model, options, mesh, nn::olmo3::DefaultRules(model, mesh));
    CHECK(program.ok(), "{}", program.status().message());
    program_ = *std::move(program);
    auto client = pjrt::SharedDefaultClient(mesh.num_devices());
    CHECK(client.ok(), "{}", client.status().message());
    client_ = *client;
    // Without LLVM's optimizations, which take most of the time for a model of this size.
    pjrt::CompileOptions quick;
    quick.overrides["xla_backend_optimization_level"] = int64_t{0};
    auto executable = client_->Compile(program_, quick);
    CHECK(executable.ok(), "{}", executable.status().message());
    executable_ = *std::move(executable);
  }

  Ran operator()(const Inputs& inputs) const {
    Ran ran{.before = Arguments(program_, inputs), .results = {}};
    const Status status = Execute(ran);
    EXPECT_TRUE(status.ok()) << status.message();
    return ran;
  }
  // Names of the results.
  const std::string& name(size_t result) const { return program_.results[result].name; }

 private:
  Status Execute(Ran& ran) const {
    std::vector<pjrt::ShardedArray> arrays;
    for (size_t i = 0; i < ran.before.size(); ++i)
      arrays.push_back(TRY(pjrt::ShardedArray::FromHost(
          *client_, ran.before[i], executable_->argument_layout(static_cast<int64_t>(i)))));
    std::vector<pjrt::ShardedArray*> pointers;
    for (pjrt::ShardedArray& array : arrays) pointers.push_back(&array);
    for (const pjrt::ShardedArray& result : TRY(executable_->Execute(pointers)))
      ran.results.push_back(TRY(result.ToHost()));
    return {};
  }

  Program program_;
  pjrt::Client* client_ = nullptr;
  std::unique_ptr<pjrt::Executable> executable_;
};

// The whole batch at once on one device, compiled for all tests. Never destroyed: its client is
// gone when static objects are.
const CompiledStep& WholeStep() {
  static const CompiledStep& step = *new CompiledStep(Options(1));
  return step;
}

bool Installed() { return pjrt::SharedDefaultClient(1).ok(); }
#define SKIP_WITHOUT_PLUGIN() \
  if (!Installed()) GTEST_SKIP() << "no CPU plugin is installed; run `make setup`"

// First moments of one step from zero: a tenth of the clipped gradients. Weights would not do:
// Adam's first step is the sign of the gradient.
constexpr size_t kFirstGradient = StepMetric::kNum + 1;
bool IsGradient(size_t result, const Ran& ran) {
  return result >= kFirstGradient && result + 1 < ran.results.size() &&
         (result - kFirstGradient) % kTensorsPerParameter == 0;
}

double Norm(const Ran& ran) {
  double sum = 0;
  for (size_t i = 0; i < ran.results.size(); ++i)
    for (int64_t e = 0; IsGradient(i, ran) && e < ran.results[i].num_elements(); ++e)
      sum += ran.results[i].Get(e) * ran.results[i].Get(e);
  return std::sqrt(sum);
}

// Every gradient tensor, relative to its own largest element; returns the largest difference.
double ExpectSameGradients(const Ran& one, const Ran& other, const CompiledStep& step) {
  double worst = 0;
  int64_t tensors = 0;
  for (size_t i = 0; i < one.results.size(); ++i) {
    if (!IsGradient(i, one)) continue;
    double scale = 0, difference = 0;
    for (int64_t e = 0; e < one.results[i].num_elements(); ++e) {
      scale = std::max(scale, std::fabs(one.results[i].Get(e)));
      difference = std::max(difference, std::fabs(one.results[i].Get(e) - other.results[i].Get(e)));
    }
    EXPECT_GT(scale, 0) << step.name(i);
    EXPECT_LT(difference, 2e-5 * scale) << step.name(i);
    worst = std::max(worst, difference / scale);
    ++tensors;
  }
  EXPECT_EQ(tensors, std::ssize(nn::olmo3::Parameters(Model())));
  return worst;
}

double ExpectSameStep(const Ran& one, const Ran& other, const CompiledStep& step) {
  EXPECT_EQ(other.metric(StepMetric::kApplied), 1);
  EXPECT_GT(one.metric(StepMetric::kGradNorm), 0.1);
  EXPECT_EQ(other.metric(StepMetric::kCount), one.metric(StepMetric::kCount));
  for (const int64_t metric : {StepMetric::kLoss, StepMetric::kZLoss, StepMetric::kGradNorm})
    EXPECT_NEAR(other.metric(metric), one.metric(metric), 2e-6 * one.metric(metric)) << metric;
  return ExpectSameGradients(one, other, step);
}

void ExpectStateKept(const Ran& ran) {
  EXPECT_EQ(ran.metric(StepMetric::kApplied), 0);
  EXPECT_EQ(ran.metric(StepMetric::kUpdateNorm), 0);
  for (size_t i = StepMetric::kNum; i < ran.results.size(); ++i) {
    const auto got = ran.results[i].bytes(), old = ran.before[i - StepMetric::kNum].bytes();
    EXPECT_TRUE(std::ranges::equal(got, old)) << "state tensor " << i - StepMetric::kNum;
  }
}

// Ten per cent of the targets in the first half of the batch, ninety in the second.
bool UnevenMask(int64_t i) { return i < kBatch * kLength / 2 ? i % 10 == 1 : i % 10 != 1; }

struct Cut {
  int64_t data, fsdp, tensor, microbatches;
  int64_t shards() const { return data * fsdp; }
  Mesh mesh() const {
    if (shards() * tensor == 1) return {};
    return Mesh({{"data", data}, {"fsdp", fsdp}, {"tensor", tensor}, {"context", 1}});
  }
  // Of the instance that holds element i of the global batch.
  int64_t shard(int64_t i) const {
    const int64_t rows = kBatch / microbatches;
    return i / kLength % rows / (rows / shards());
  }
  int64_t microbatch(int64_t i) const { return i / kLength / (kBatch / microbatches); }
};

class StepProgramCuts : public testing::TestWithParam<Cut> {};

std::vector<Cut> AllCuts() {
  std::vector<Cut> cuts;
  for (const auto& [data, fsdp] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {2, 1}, {2, 2}, {1, 8}})  // 1, 2, 4 and 8 shards
    for (const int64_t microbatches : {1, 2, 4}) cuts.push_back({data, fsdp, 1, microbatches});
  cuts.push_back({2, 2, 2, 2});
  return cuts;
}
INSTANTIATE_TEST_SUITE_P(All, StepProgramCuts, testing::ValuesIn(AllCuts()), [](const auto& test) {
  const Cut& cut = test.param;
  return fmt::format("Data{}Fsdp{}Tensor{}Microbatches{}", cut.data, cut.fsdp, cut.tensor,
                     cut.microbatches);
});

// Uneven masks, nothing to learn in one share, nothing to learn at all.
TEST_P(StepProgramCuts, ChangeNeitherLossNorGradients) {
  SKIP_WITHOUT_PLUGIN();
  const Cut cut = GetParam();
  const CompiledStep step(Options(cut.microbatches), cut.mesh());
  Inputs inputs;
  inputs.mask = UnevenMask;
  const double uneven = ExpectSameStep(WholeStep()(inputs), step(inputs), step);

  // The targets of a device in all microbatches, and of the last microbatch on all devices.
  inputs.mask = [&](int64_t i) {
    return UnevenMask(i) && (cut.shards() == 1 || cut.shard(i) > 0) &&
           (cut.microbatches == 1 || cut.microbatch(i) + 1 < cut.microbatches);
  };
  const double share = ExpectSameStep(WholeStep()(inputs), step(inputs), step);

  inputs.mask = [](int64_t) { return false; };
  const Ran nothing = step(inputs);
  EXPECT_EQ(nothing.metric(StepMetric::kLoss), 0);
  EXPECT_EQ(nothing.metric(StepMetric::kCount), 0);
  ExpectStateKept(nothing);
  fmt::print("gradients within {:.2g} of the largest of their tensor; {:.2g} with an empty share\n",
             uneven, share);
}

// The norm that is limited is that of the whole batch, once.
TEST(StepProgram, ClipsOnceAfterAllMicrobatches) {
  SKIP_WITHOUT_PLUGIN();
  constexpr double kLimit = 0.05;
  constexpr int64_t kMicrobatches = 4;
  StepOptions at_once = Options(1), in_parts = Options(kMicrobatches);
  at_once.max_grad_norm = in_parts.max_grad_norm = kLimit;
  const CompiledStep whole(at_once), parts(in_parts);
  Inputs inputs;
  inputs.mask = UnevenMask;
  const Ran one = whole(inputs), other = parts(inputs);
  EXPECT_GT(one.metric(StepMetric::kGradNorm), 10 * kLimit);
  ExpectSameStep(one, other, parts);
  EXPECT_NEAR(Norm(other), 0.1 * kLimit, 1e-5 * kLimit);

  // Each part clipped by itself would give another gradient, and a norm beyond the limit.
  Ran sum;
  for (int64_t part = 0; part < kMicrobatches; ++part) {
    Inputs alone = inputs;
    alone.mask = [&](int64_t i) {
      return UnevenMask(i) && i / kLength / (kBatch / kMicrobatches) == part;
    };
    Ran ran = whole(alone);
    const double missing = one.metric(StepMetric::kCount) - ran.metric(StepMetric::kCount);
    alone.added = missing;  // the divisor of the whole batch
    ran = whole(alone);
    EXPECT_GT(ran.metric(StepMetric::kGradNorm), kLimit) << part;
    if (part == 0) {
      sum = std::move(ran);
      continue;
    }
    for (size_t i = 0; i < sum.results.size(); ++i)
      for (int64_t e = 0; e < sum.results[i].num_elements(); ++e)
        sum.results[i].Set(e, sum.results[i].Get(e) + ran.results[i].Get(e));
  }
  EXPECT_GT(Norm(sum), 1.5 * 0.1 * kLimit);
}

TEST(StepProgram, ASkippedStepKeepsEveryBit) {
  SKIP_WITHOUT_PLUGIN();
  Inputs above;
  above.loss_limit = 1;
  ExpectStateKept(WholeStep()(above));
  Inputs poisoned;
  poisoned.weight = [](int64_t tensor, int64_t i, double w) {
    return tensor == 3 && i == 0 ? std::nan("") : w;
  };
  const Ran ran = WholeStep()(poisoned);
  EXPECT_TRUE(std::isnan(ran.metric(StepMetric::kLoss)));
  ExpectStateKept(ran);
}

// Targets that OLMo-core adds back for filtered instances lower the loss and nothing else.
TEST(StepProgram, AddedTargetsOnlyDivide) {
  SKIP_WITHOUT_PLUGIN();
  const Ran plain = WholeStep()({});
  Inputs inputs;
  inputs.added = kBatch * (kLength - 1);  // as many again
  const Ran added = WholeStep()(inputs);
  EXPECT_NEAR(added.metric(StepMetric::kLoss), plain.metric(StepMetric::kLoss) / 2, 1e-6);
  EXPECT_NEAR(added.metric(StepMetric::kGradNorm), plain.metric(StepMetric::kGradNorm) / 2, 1e-6);
  EXPECT_EQ(added.metric(StepMetric::kCount), plain.metric(StepMetric::kCount));
}

TEST(StepProgram, OnlyTheEmbeddingKeepsItsSizeWithoutGradients) {
  SKIP_WITHOUT_PLUGIN();
  // Token 60 occurs nowhere: its row has no gradient, but a row of the head always has.
  Inputs inputs;
  inputs.token = [](int64_t i) { return i % 59; };
  const Ran ran = WholeStep()(inputs);
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
  EXPECT_THAT(message(Options(3)), HasSubstr("32 instances % 3 microbatches = 2"));
  EXPECT_THAT(message(Options(0)), HasSubstr("in 0 microbatches"));
  EXPECT_THAT(message(Options(16), Mesh({{"data", 4}, {"fsdp", 1}, {"tensor", 1}, {"context", 1}})),
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
