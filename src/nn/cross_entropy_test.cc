#include "nn/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "graph/interpret.h"
#include "nn/testing/cross_entropy_program.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kResults[] = {"nll", "logsumexp", "dx", "dhead"};

void ExpectEqualsTheTwin(HeadShape shape, const CrossEntropyOptions& options,
                         const Mesh& mesh = {}) {
  HeadProgram program(shape, DType::kF32, DType::kF32, options, mesh);
  const auto got = Interpret(program.graph, program.inputs, {.round = false});
  const auto want = program.Reference();
  for (size_t r = 0; r < want.size(); ++r) {
    for (size_t i = 0; i < want[r].size(); ++i) {
      ASSERT_NEAR(got[r].data[i], want[r][i], 1e-12 * std::max(1.0, std::fabs(want[r][i])))
          << kResults[r] << "[" << i << "], V=" << shape.V << " blocks of " << options.token_block
          << " x " << options.vocab_block;
    }
  }
}

TEST(CrossEntropy, EqualsTheTwinForAnyBlock) {
  for (const int64_t tokens : {1, 4, 5, 12, 100}) {
    for (const int64_t rows : {1, 4, 5, 11, 100})
      ExpectEqualsTheTwin({.B = 2, .T = 6, .D = 3, .V = 11},
                          {.token_block = tokens, .vocab_block = rows});
  }
}

TEST(CrossEntropy, PaddingRowsCountOrNotAsAsked) {
  for (const PaddingRows padding : {PaddingRows::kCounted, PaddingRows::kMasked}) {
    for (const int64_t rows : {3, 4, 12})
      ExpectEqualsTheTwin({.B = 1, .T = 7, .D = 2, .V = 12},
                          {.vocab_size = 9, .padding = padding, .vocab_block = rows});
  }
}

TEST(CrossEntropy, OnAMeshEqualsTheTwin) {
  const Mesh mesh({{"data", 2}, {"fsdp", 2}, {"tensor", 2}});
  const Sharding x{{{"data", "fsdp"}, {}, {}}}, sequence{{{"data"}, {"fsdp"}, {}}},
      some{{{"data"}, {}, {}}};
  for (const Sharding& tokens : {x, sequence, some, Sharding::Replicated(3)}) {
    for (const Sharding& head :
         {Sharding{{{"tensor"}, {"fsdp"}}}, Sharding{{{"tensor"}, {}}}, Sharding{{{}, {"fsdp"}}},
          Sharding{{{}, {"fsdp", "tensor"}}}, Sharding::Replicated(2)}) {
      ExpectEqualsTheTwin({.B = 4, .T = 2, .D = 4, .V = 10},
                          {.vocab_size = 4,  // of the second device along "tensor" no row counts
                           .padding = PaddingRows::kMasked,
                           .vocab_block = 3,
                           .sharding = tokens,
                           .head_sharding = head},
                          mesh);
    }
  }
}

// The twin's own gradients, which everything else is compared with.
TEST(CrossEntropy, GradientsOfTheTwinEqualCentralDifferences) {
  const HeadShape shape{.B = 1, .T = 5, .D = 2, .V = 6};
  const HeadProgram program(shape, DType::kF32, DType::kF32,
                            {.vocab_size = 5, .padding = PaddingRows::kMasked});
  std::vector<std::vector<double>> x;
  for (const RefTensor& input : program.inputs) x.push_back(input.data);
  const auto twin = [&] {
    return CrossEntropyReference(shape, program.options, x[0], x[1], x[2], x[3], x[4]);
  };
  const auto loss = [&] {
    const HeadResults r = twin();
    double sum = 0;
    for (size_t i = 0; i < r.nll.size(); ++i) sum += r.nll[i] * x[3][i] + r.logsumexp[i] * x[4][i];
    return sum;
  };
  const HeadResults want = twin();
  const double h = 1e-5;
  for (size_t input = 0; input < 2; ++input) {
    for (size_t i = 0; i < x[input].size(); ++i) {
      const double middle = x[input][i];
      x[input][i] = middle + h;
      const double above = loss();
      x[input][i] = middle - h;
      const double below = loss();
      x[input][i] = middle;
      // Truncation, h^2 times a third derivative, and cancellation, eps/h, are both near 1e-9.
      EXPECT_NEAR((input == 0 ? want.dx : want.dhead)[i], (above - below) / (2 * h), 1e-7);
    }
  }
}

TEST(CrossEntropy, ALabelThatIsNoTokenHasNoLossAndNoGradient) {
  Graph graph("ignored");
  const Value x = graph.Parameter("x", {DType::kF32, {1, 4, 2}}),
              head = graph.Parameter("head", {DType::kF32, {3, 2}}),
              labels = graph.Parameter("labels", {DType::kI32, {1, 4}});
  const CrossEntropyResult r = CrossEntropy(x, head, labels, {.vocab_size = 2});
  const Values grads = Grad(ReduceSum(r.nll, {0, 1}), {x, head});
  graph.Result("nll", r.nll);
  graph.Result("logsumexp", r.logsumexp);
  graph.Result("dx", grads[0]);
  graph.Result("dhead", grads[1]);
  // 2 is a padding row, the others are far outside.
  const std::vector<RefTensor> inputs{
      Noise(x.type(), 1), Noise(head.type(), 2), {labels.type(), {-100, -1, 2, 2147483647}}};
  const auto results = Interpret(graph, inputs);
  for (const size_t i : {0, 2, 3}) EXPECT_THAT(results[i].data, testing::Each(0.0)) << kResults[i];
  EXPECT_THAT(results[1].data, testing::Each(testing::Gt(0.0)));
}

TEST(CrossEntropy, TheHeadOfABFloat16ModelKeepsAFloat32Gradient) {
  HeadProgram program({.B = 1, .T = 9, .D = 4, .V = 7}, DType::kBF16, DType::kF32,
                      {.token_block = 4, .vocab_block = 3});
  const auto got = Interpret(program.graph, program.inputs);
  // The twin on the head rounded to bf16: what is left is the rounding of d logits, 2^-9.
  for (double& w : program.inputs[1].data) w = RoundTo(DType::kBF16, w);
  const auto want = program.Reference();
  EXPECT_EQ(got[2].type.dtype, DType::kBF16);
  EXPECT_EQ(got[3].type.dtype, DType::kF32);
  for (size_t r = 0; r < want.size(); ++r) {
    double largest = 0;
    for (const double w : want[r]) largest = std::max(largest, std::fabs(w));
    for (size_t i = 0; i < want[r].size(); ++i)
      EXPECT_NEAR(got[r].data[i], want[r][i], (r < 2 ? 1e-6 : 1.0 / 128) * largest) << kResults[r];
  }
}

TEST(CrossEntropy, NoTensorOfTheProgramHoldsAllLogits) {
  HeadProgram program({.B = 2, .T = 4096, .D = 8, .V = 10000}, DType::kBF16, DType::kF32,
                      {.token_block = 1024, .vocab_block = 512});
  const std::string text = program.graph.ToProgram({.locations = false}).text;
  for (const char* logits : {"4096x10000x", "8192x10000x", "1024x10000x", "8192x512x"})
    EXPECT_THAT(text, Not(HasSubstr(logits)));
  EXPECT_THAT(text, HasSubstr("tensor<1024x512xf32>"));  // logits of one block
}

TEST(CrossEntropy, OnAMeshTheHeadIsGatheredAndItsGradientScattered) {
  const Mesh mesh({{"fsdp", 4}, {"tensor", 2}});
  HeadProgram program(
      {.B = 4, .T = 8, .D = 16, .V = 20}, DType::kBF16, DType::kF32,
      {.sharding = Sharding{{{"fsdp"}, {}, {}}}, .head_sharding = Sharding{{{"tensor"}, {"fsdp"}}}},
      mesh);
  const std::string text = program.graph.ToProgram({.locations = false}).text;
  EXPECT_THAT(text, HasSubstr("(tensor<10x4xbf16>) -> tensor<10x16xbf16>"));  // rounded first
  EXPECT_THAT(text, HasSubstr("(tensor<10x16xf32>) -> tensor<10x4xf32>"));
}

TEST(CrossEntropyDeathTest, MistakesNameShapesTheEquationAndTheLineOfTheCaller) {
  Graph graph("head", Mesh({{"tensor", 4}}));
  const auto value = [&](DType dtype, Shape shape) {
    return graph.Parameter("x", {dtype, std::move(shape)});
  };
  const Value x = value(DType::kBF16, {2, 4, 8}), head = value(DType::kF32, {10, 8}),
              labels = value(DType::kI32, {2, 4});
  EXPECT_DEATH(CrossEntropy(x, value(DType::kF32, {10, 4}), labels),
               "cross_entropy_test.cc:[0-9]+: .*head is f32\\[10,4\\], expected bf16\\[V,8\\]");
  EXPECT_DEATH(CrossEntropy(head, head, labels), "x is f32\\[10,8\\]");
  EXPECT_DEATH(CrossEntropy(x, head, value(DType::kI32, {8})),
               "labels is i32\\[8\\], expected i32\\[2,4\\]");
  EXPECT_DEATH(CrossEntropy(x, head, labels, {.vocab_size = 11}), "vocab_size 11 .* 10 rows");
  const Sharding whole = Sharding::Replicated(3);
  EXPECT_DEATH(CrossEntropy(x, head, labels,
                            {.sharding = whole, .head_sharding = Sharding{{{"tensor"}, {}}}}),
               "cross_entropy: head: .*10 % \\(tensor=4\\) = 2");
  EXPECT_DEATH(CrossEntropy(x, head, labels, {.sharding = Sharding{{{"tensor"}, {}, {}}}}),
               "cross_entropy: x: .*2 % \\(tensor=4\\) = 2");
  EXPECT_DEATH(CrossEntropy(x, head, labels, {.sharding = Sharding{{{}, {}, {"tensor"}}}}),
               "D whole");
  EXPECT_DEATH(CrossEntropy(x, value(DType::kF32, {8, 8}), labels,
                            {.sharding = Sharding{{{}, {"tensor"}, {}}},
                             .head_sharding = Sharding{{{"tensor"}, {}}}}),
               "'tensor' cuts the tokens of x .* and the rows of head");
  EXPECT_DEATH(CrossEntropy(x, head, labels, {.head_sharding = Sharding::Replicated(2)}),
               "a sharding of the head without one of x");
}

}  // namespace
}  // namespace ulmus::nn
