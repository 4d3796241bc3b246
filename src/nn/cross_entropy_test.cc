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

}  // namespace
}  // namespace ulmus::nn
