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

}  // namespace
}  // namespace ulmus::nn
