#include "data/instance_source.h"

#include <gtest/gtest.h>

#include <vector>

namespace ulmus::data {
namespace {

using Ints = std::vector<int32_t>;

struct Filled {
  Ints segments;
  Ints positions;
};

Filled Fill(const Ints& tokens, int64_t num_real, const DocumentRule& rule) {
  Filled filled{Ints(tokens.size()), Ints(tokens.size())};
  FillDocuments(tokens, num_real, rule,
                {.segment_ids = filled.segments, .positions = filled.positions});
  return filled;
}

TEST(FillDocuments, EndsADocumentWithItsEos) {
  const Filled filled = Fill({5, 9, 6, 7, 9, 8}, 6, {.eos = 9});
  EXPECT_EQ(filled.segments, (Ints{1, 1, 2, 2, 2, 3}));
  EXPECT_EQ(filled.positions, (Ints{0, 1, 0, 1, 2, 0}));
}

TEST(FillDocuments, GivesPaddingItsOwnSegment) {
  const Filled filled = Fill({5, 9, 0, 0}, 2, {.eos = 9});
  EXPECT_EQ(filled.segments, (Ints{1, 1, 0, 0}));
  EXPECT_EQ(filled.positions, (Ints{0, 1, 0, 1}));
}

TEST(FillDocuments, NeedsBosAfterEosWhereThereIsOne) {
  const Filled filled = Fill({1, 9, 5, 9, 1, 5}, 6, {.eos = 9, .bos = 1});
  EXPECT_EQ(filled.segments, (Ints{1, 1, 1, 1, 2, 2}));
}

TEST(FillDocuments, CountsAnEosOfItsOwnAsADocument) {
  EXPECT_EQ(Fill({9, 9, 5}, 3, {.eos = 9}).segments, (Ints{1, 2, 3}));
  EXPECT_EQ(Fill({9, 9, 5}, 0, {.eos = 9}).segments, (Ints{0, 0, 0}));
}

}  // namespace
}  // namespace ulmus::data
