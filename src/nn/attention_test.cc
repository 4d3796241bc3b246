#include "nn/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/interpret.h"
#include "graph/ops.h"
#include "nn/testing/attention_program.h"

namespace ulmus::nn {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kResults[] = {"out", "dq", "dk", "dv"};

void ExpectEqualsTheTwin(AttentionShape shape, AttentionOptions options, const Mesh& mesh = {}) {
  AttentionProgram program(shape, DType::kF32, options, mesh);
  const auto got = Interpret(program.graph, program.inputs, {.round = false});
  const auto want = program.Reference();
  for (size_t r = 0; r < want.size(); ++r) {
    for (size_t i = 0; i < want[r].size(); ++i) {
      // Sums in another order; the scale is an f32 attribute, off by up to 2^-24 of itself.
      ASSERT_NEAR(got[r].data[i], want[r][i], 2e-6 * std::max(1.0, std::fabs(want[r][i])))
          << kResults[r] << "[" << i << "], T=" << shape.T << " N=" << shape.N << " K=" << shape.K
          << " window=" << shape.window << " block=" << options.block;
    }
  }
}

TEST(Attention, EqualsTheTwinForAnyBlockAndWindow) {
  for (const int64_t window : {0, 1, 2, 4, 5, 11, 12, 13}) {
    for (const int64_t block : {1, 3, 4, 5, 12, 16})
      ExpectEqualsTheTwin({.B = 1, .T = 12, .N = 2, .K = 1, .H = 4, .window = window},
                          {.block = block});
  }
}

TEST(Attention, EqualsTheTwinForAnyGroupOfQueryHeads) {
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{1, 1}, {4, 4}, {4, 2}, {6, 2}, {5, 1}})
    ExpectEqualsTheTwin({.B = 2, .T = 7, .N = N, .K = K, .H = 2, .window = 3}, {.block = 3});
}

TEST(Attention, EqualsTheTwinForShortSequencesAndAnyScale) {
  for (const int64_t T : {1, 2, 3})
    ExpectEqualsTheTwin({.B = 2, .T = T, .N = 2, .K = 1, .H = 3, .scale = 0.7}, {});
}

// Documents of one token at the start, at the end and at both, and in the middle; long ones.
const std::vector<int64_t> kDocuments = {
    0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  //
    5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6,  //
    0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4,  //
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
};

TEST(Attention, DocumentMasksEqualTheTwin) {
  for (const int64_t window : {0, 1, 3}) {
    for (const int64_t block : {2, 4, 11})
      ExpectEqualsTheTwin(
          {.B = 4, .T = 11, .N = 2, .K = 2, .H = 2, .window = window, .segments = kDocuments},
          {.block = block});
  }
}

TEST(Attention, OnAMeshEqualsTheTwin) {
  const Mesh mesh({{"data", 2}, {"tensor", 2}, {"context", 2}});
  const AttentionShape shape{.B = 4, .T = 12, .N = 4, .K = 2, .H = 2, .window = 0, .segments = {}};
  for (const Sharding& sharding :
       {Sharding{{{"data"}, {}, {"tensor"}, {}}}, Sharding{{{}, {"context"}, {}, {}}},
        Sharding{{{"data"}, {"context"}, {"tensor"}, {}}},
        Sharding{{{}, {"context", "data"}, {"tensor"}, {}}}, Sharding::Replicated(4)}) {
    for (const int64_t window : {0, 1, 4}) {
      AttentionShape one = shape;
      one.window = window;
      ExpectEqualsTheTwin(one, {.block = 2, .sharding = sharding}, mesh);
      for (int64_t t = 0; t < one.B * one.T; ++t) one.segments.push_back(t / 5);
      ExpectEqualsTheTwin(one, {.block = 4, .sharding = sharding}, mesh);
    }
  }
}

// With 3 queries on each of 4 devices: no neighbour, one or two, then all keys.
TEST(Attention, WindowsThatReachSomeNeighboursEqualTheTwin) {
  const Mesh mesh({{"context", 4}});
  for (const int64_t window : {1, 2, 4, 5, 7, 8, 11}) {
    AttentionShape shape{.B = 1, .T = 12, .N = 2, .K = 1, .H = 2, .window = window};
    for (const int64_t block : {2, 3}) {
      shape.segments.clear();
      const AttentionOptions options{.block = block,
                                     .sharding = Sharding{{{}, {"context"}, {}, {}}}};
      ExpectEqualsTheTwin(shape, options, mesh);
      for (int64_t t = 0; t < shape.T; ++t) shape.segments.push_back(t / 5);
      ExpectEqualsTheTwin(shape, options, mesh);
    }
  }
}

// The twin's own gradients, which everything else is compared with.
TEST(Attention, GradientsOfTheTwinEqualCentralDifferences) {
  const AttentionShape shape{.B = 2,
                             .T = 5,
                             .N = 2,
                             .K = 1,
                             .H = 2,
                             .window = 3,
                             .segments = {0, 0, 0, 1, 1, 0, 1, 1, 1, 1}};
  AttentionProgram program(shape, DType::kF32);
  const auto want = program.Reference();
  std::vector<std::vector<double>> x;
  for (size_t i = 0; i < 4; ++i) x.push_back(program.inputs[i].data);
  const auto loss = [&] {
    const std::vector<double> out = AttentionReference(shape, x[0], x[1], x[2]);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * x[3][i];
    return sum;
  };
  const double h = 1e-5;
  for (size_t input = 0; input < 3; ++input) {
    for (size_t i = 0; i < x[input].size(); ++i) {
      const double middle = x[input][i];
      x[input][i] = middle + h;
      const double above = loss();
      x[input][i] = middle - h;
      const double below = loss();
      x[input][i] = middle;
      // Truncation, h^2 times a third derivative, and cancellation, eps/h, are both near 1e-9.
      EXPECT_NEAR(want[1 + input][i], (above - below) / (2 * h), 1e-7) << kResults[1 + input] << i;
    }
  }
}

// Scores of 0 and one-hot values: the result is the list of keys that a query reads.
std::vector<std::vector<int64_t>> KeysRead(int64_t T, const AttentionOptions& options,
                                           const Mesh& mesh = {}) {
  Graph graph("one_hot", mesh);
  const TensorType type{DType::kF32, {1, T, 1, T}};
  const Value zero = Splat(graph, 0, type), v = graph.Parameter("v", type);
  graph.Result("out", Attention(zero, zero, v, options));
  RefTensor one_hot = RefTensor::Zeros(type);
  for (int64_t t = 0; t < T; ++t) one_hot.data[static_cast<size_t>(t * T + t)] = 1;
  const RefTensor out = Interpret(graph, std::vector{one_hot})[0];
  std::vector<std::vector<int64_t>> keys(static_cast<size_t>(T));
  for (int64_t i = 0; i < T; ++i) {
    for (int64_t j = 0; j < T; ++j) {
      if (out.data[static_cast<size_t>(i * T + j)] != 0) keys[static_cast<size_t>(i)].push_back(j);
    }
  }
  return keys;
}

TEST(Attention, AWindowOfFourIsTheQueryAndThreeKeysBeforeIt) {
  for (const int64_t block : {0, 1, 2, 3, 4, 5, 12}) {
    const auto keys = KeysRead(12, {.window = 4, .block = block});
    for (int64_t i = 0; i < 12; ++i) {
      std::vector<int64_t> want;
      for (int64_t j = std::max<int64_t>(0, i - 3); j <= i; ++j) want.push_back(j);
      EXPECT_EQ(keys[static_cast<size_t>(i)], want) << "query " << i << ", block " << block;
    }
  }
}

// Keys gathered whole, or fetched from the neighbours in reach: windows at, below and above the
// block of 3 positions that a device has, and twice it.
TEST(Attention, AWindowReadsTheSameKeysWhereTheSequenceIsCut) {
  const Mesh mesh({{"context", 4}});
  for (const int64_t window : {1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 0}) {
    for (const int64_t block : {0, 2, 3}) {
      const auto keys = KeysRead(
          12, {.window = window, .block = block, .sharding = Sharding{{{}, {"context"}, {}, {}}}},
          mesh);
      for (int64_t i = 0; i < 12; ++i) {
        std::vector<int64_t> want;
        for (int64_t j = window == 0 ? 0 : std::max<int64_t>(0, i - window + 1); j <= i; ++j)
          want.push_back(j);
        EXPECT_EQ(keys[static_cast<size_t>(i)], want)
            << "query " << i << ", window " << window << ", block " << block;
      }
    }
  }
}

// A value that is NaN reaches every query whose block computes with it: 0 * NaN is NaN. So queries
// with a finite result have left its block out.
TEST(Attention, BlocksOutsideTheBandAreNotComputed) {
  const int64_t T = 12, window = 4, block = 3;
  for (int64_t poisoned = 0; poisoned < T / block; ++poisoned) {
    AttentionProgram program({.B = 1, .T = T, .N = 1, .K = 1, .H = 1, .window = window},
                             DType::kF32, {.block = block});
    for (int64_t t = poisoned * block; t < (poisoned + 1) * block; ++t)
      program.inputs[2].data[static_cast<size_t>(t)] = NAN;
    const std::vector<RefTensor> results = Interpret(program.graph, program.inputs);
    for (int64_t i = 0; i < T; ++i) {
      const bool reached =
          i / block >= poisoned && (i / block * block - window + 1) / block <= poisoned;
      for (const size_t r : {0, 1}) {
        EXPECT_EQ(std::isnan(results[r].data[static_cast<size_t>(i)]), reached)
            << kResults[r] << " of query " << i << ", keys of block " << poisoned;
      }
    }
  }
}

TEST(Attention, GroupedHeadsEqualRepeatedHeads) {
  Graph graph("groups");
  const int64_t B = 2, T = 9, N = 6, K = 2, H = 4;
  const TensorType queries{DType::kF32, {B, T, N, H}}, keys{DType::kF32, {B, T, K, H}};
  const Value q = graph.Parameter("q", queries), k = graph.Parameter("k", keys),
              v = graph.Parameter("v", keys), ct = graph.Parameter("ct", queries);
  const auto repeated = [&](Value x) {
    return Reshape(BroadcastInDim(x, {B, T, K, N / K, H}, {0, 1, 2, 4}), queries.shape);
  };
  const AttentionOptions options{.window = 5, .block = 4};
  for (const Value out :
       {Attention(q, k, v, options), Attention(q, repeated(k), repeated(v), options)}) {
    graph.Result("out", out);
    for (const Value grad : Grad(SumOfProducts(out, ct), {q, k, v})) graph.Result("grad", grad);
  }
  const std::vector<RefTensor> inputs{Noise(queries, 1), Noise(keys, 2), Noise(keys, 3),
                                      Noise(queries, 4)};
  const auto results = Interpret(graph, inputs, {.round = false});
  for (size_t r = 0; r < 4; ++r) {
    for (size_t i = 0; i < results[r].data.size(); ++i)
      EXPECT_NEAR(results[r].data[i], results[4 + r].data[i], 1e-13) << kResults[r];
  }
}

// Scores stay f32; probabilities, score gradients and results are rounded to 2^-9 once each.
TEST(Attention, BFloat16StaysWithinItsRoundingsOfTheTwin) {
  const AttentionShape shape{.B = 1, .T = 12, .N = 2, .K = 1, .H = 8, .window = 5};
  AttentionProgram narrow(shape, DType::kBF16, {.block = 4});
  const auto got = Interpret(narrow.graph, narrow.inputs);
  const auto want = narrow.Reference();
  for (size_t r = 0; r < want.size(); ++r) {
    EXPECT_EQ(got[r].type.dtype, DType::kBF16);
    double largest = 0;
    for (const double x : want[r]) largest = std::max(largest, std::fabs(x));
    for (size_t i = 0; i < want[r].size(); ++i)
      EXPECT_NEAR(got[r].data[i], want[r][i], largest / 64) << kResults[r];
  }
}

TEST(Attention, NoTensorOfTheProgramIsQuadraticInTheSequence) {
  for (const int64_t window : {0, 512}) {
    AttentionProgram program({.B = 1, .T = 4096, .N = 4, .K = 2, .H = 8, .window = window},
                             DType::kBF16, {.block = 128});
    const std::string text = program.graph.ToProgram({.locations = false}).text;
    EXPECT_THAT(text, Not(HasSubstr("4096x4096")));
    EXPECT_THAT(text, HasSubstr("tensor<1x2x2x128x128xf32>"));  // scores of one block
    // Keys and values of all query heads, in blocks or not.
    EXPECT_THAT(text, Not(HasSubstr("tensor<32x1x4x128x8x")));
    EXPECT_THAT(text, Not(HasSubstr("tensor<1x2x2x4096x8x")));
  }
}

TEST(Attention, OnAMeshItStandsInAManualRegionAndGathersKeysAlone) {
  const Mesh mesh({{"data", 2}, {"tensor", 2}, {"context", 2}});
  AttentionProgram program({.B = 4, .T = 64, .N = 8, .K = 4, .H = 16}, DType::kF32,
                           {.sharding = Sharding{{{"data"}, {"context"}, {"tensor"}, {}}}}, mesh);
  const std::string text = program.graph.ToProgram({.locations = false}).text;
  EXPECT_THAT(text, HasSubstr("manual_axes={\"data\", \"context\", \"tensor\"}"));
  EXPECT_THAT(text, HasSubstr("(tensor<2x32x2x16xf32>) -> tensor<2x64x2x16xf32>"));  // keys
  EXPECT_THAT(text, Not(HasSubstr("(tensor<2x32x4x16xf32>) -> tensor<2x64x4x16xf32>")));
  EXPECT_THAT(text, HasSubstr("stablehlo.reduce_scatter"));
}

TEST(AttentionDeathTest, MistakesNameShapesTheEquationAndTheLineOfTheCaller) {
  Graph graph("attention", Mesh({{"tensor", 4}, {"context", 3}}));
  const auto value = [&](DType dtype, Shape shape) {
    return graph.Parameter("x", {dtype, std::move(shape)});
  };
  const Value q = value(DType::kF32, {1, 8, 8, 4}), k = value(DType::kF32, {1, 8, 2, 4});
  EXPECT_DEATH(Attention(k, q, q),
               "attention_test.cc:[0-9]+: .*2 query heads for 8 key heads: 2 % 8 = 2");
  EXPECT_DEATH(Attention(q, k, q), "k is f32\\[1,8,2,4\\], v is f32\\[1,8,8,4\\]");
  EXPECT_DEATH(Attention(q, value(DType::kBF16, {1, 8, 2, 4}), value(DType::kBF16, {1, 8, 2, 4})),
               "expected both f32\\[1,8,K,4\\] for q f32\\[1,8,8,4\\]");
  EXPECT_DEATH(Attention(value(DType::kI32, {1, 8, 8, 4}), k, k), "q is i32\\[1,8,8,4\\]");
  EXPECT_DEATH(Attention(q, k, k, {.window = -1}), "window -1");
  EXPECT_DEATH(Attention(q, k, k, {.segment_ids = value(DType::kI32, {8})}),
               "segment_ids is i32\\[8\\], expected i32\\[1,8\\]");
  EXPECT_DEATH(Attention(q, k, k, {.sharding = Sharding{{{}, {}, {"tensor"}, {}}}}),
               "attention: k and v: .*2 % \\(tensor=4\\) = 2");
  EXPECT_DEATH(Attention(q, k, k, {.sharding = Sharding{{{}, {"context"}, {}, {}}}}),
               "attention: q: .*8 % \\(context=3\\) = 2");
  EXPECT_DEATH(Attention(q, k, k, {.sharding = Sharding{{{}, {}, {}, {"tensor"}}}}), "H whole");
}

}  // namespace
}  // namespace ulmus::nn
