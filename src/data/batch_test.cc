#include "data/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/order.h"
#include "data/testing/fake_source.h"

namespace ulmus::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Whatever the cut, each row of the global batch belongs to one device in one microbatch.
TEST(BatchLayout, CutsTheBatchWithoutOverlap) {
  for (const BatchLayout layout :
       {BatchLayout{48, 1, 1, 1}, BatchLayout{48, 3, 4, 2}, BatchLayout{48, 2, 1, 8},
        BatchLayout{48, 48, 1, 1}, BatchLayout{48, 1, 48, 1}}) {
    ASSERT_TRUE(Validate(layout).ok());
    std::vector<int64_t> seen;
    std::vector<int64_t> by_host;
    for (int64_t host = 0; host < layout.num_hosts; ++host) {
      std::vector<int64_t> rows;
      for (int64_t microbatch = 0; microbatch < layout.num_microbatches; ++microbatch) {
        for (int64_t device = 0; device < layout.devices_per_host; ++device) {
          const RowRange range = DeviceRows(layout, microbatch, host, device);
          for (int64_t row = range.first; row < range.first + range.count; ++row)
            rows.push_back(row);
        }
      }
      EXPECT_EQ(rows, RowsOfHost(layout, host));
      seen.insert(seen.end(), rows.begin(), rows.end());
    }
    std::ranges::sort(seen);
    for (int64_t row = 0; row < 48; ++row) EXPECT_EQ(seen[static_cast<size_t>(row)], row);
    EXPECT_EQ(seen.size(), 48u);
  }
}

TEST(BatchLayout, MicrobatchesAreBlocksOfRows) {
  const BatchLayout layout = {
      .batch_size = 16, .num_microbatches = 2, .num_hosts = 2, .devices_per_host = 2};
  EXPECT_EQ(DeviceRows(layout, 0, 0, 0), (RowRange{0, 2}));
  EXPECT_EQ(DeviceRows(layout, 0, 1, 1), (RowRange{6, 2}));
  EXPECT_EQ(DeviceRows(layout, 1, 0, 1), (RowRange{10, 2}));
  EXPECT_THAT(RowsOfHost(layout, 1), ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
}

TEST(BatchLayout, RefusesSizesThatDoNotDivide) {
  for (const BatchLayout layout :
       {BatchLayout{10, 1, 4, 1}, BatchLayout{12, 1, 2, 4}, BatchLayout{1, 1, 4, 1},
        BatchLayout{0, 1, 1, 1}, BatchLayout{8, 0, 1, 1}, BatchLayout{8, 3, 1, 1}}) {
    const Status status = Validate(layout);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("{} / ({} * {} * {})", layout.batch_size,
                                                        layout.num_microbatches, layout.num_hosts,
                                                        layout.devices_per_host)));
  }
}

Batch OneRow(const FakeSource& source, const BatchOptions& options, int64_t id, RowCounts& counts) {
  Batch batch = MakeBatch({0}, source.sequence_length(), options);
  batch.global_ids = {id};
  const auto filled = FillRow(source, options, batch, 0);
  EXPECT_TRUE(filled.ok());
  counts = *filled;
  return batch;
}

TEST(FillRow, TargetsAreTheNextTokens) {
  const FakeSource source({.num_instances = 3, .sequence_length = 4});
  RowCounts counts;
  const Batch batch = OneRow(source, {.want_targets = true, .want_documents = true}, 2, counts);
  EXPECT_THAT(batch.tokens.values<int32_t>(), ElementsAre(8, 9, 10, 11));
  EXPECT_THAT(batch.targets.values<int32_t>(), ElementsAre(9, 10, 11, 0));
  EXPECT_THAT(batch.loss_mask.values<uint8_t>(), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(batch.segment_ids.values<int32_t>(), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(batch.positions.values<int32_t>(), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(counts.num_valid, 3);
}

// A source that masks token 2: the target before it goes, not the one after.
TEST(FillRow, MasksTokensBeforeTheShift) {
  class Masked : public FakeSource {
   public:
    Masked() : FakeSource({.num_instances = 1, .sequence_length = 4}) {}
    Status Read(int64_t instance, const InstanceRow& row) const override {
      TRY(FakeSource::Read(instance, row));
      row.loss_mask[2] = 0;
      return {};
    }
  };
  RowCounts counts;
  const Batch batch = OneRow(Masked(), {}, 0, counts);
  EXPECT_THAT(batch.loss_mask.values<uint8_t>(), ElementsAre(1, 0, 1, 0));
  EXPECT_EQ(counts.num_valid, 2);
}

TEST(FillRow, AFilteredInstanceHasNoTargets) {
  const FakeSource source(
      {.num_instances = 2, .sequence_length = 40, .token = [](int64_t i, int64_t t) {
         return static_cast<int32_t>(i == 0 ? 7 : t);
       }});
  const BatchOptions options = {.filter_ngrams = true};
  RowCounts dirty, clean;
  const Batch batch = OneRow(source, options, 0, dirty);
  OneRow(source, options, 1, clean);
  EXPECT_TRUE(dirty.filtered);
  EXPECT_EQ(dirty.num_valid, 0);
  EXPECT_THAT(batch.loss_mask.values<uint8_t>(), Each(0));
  EXPECT_FALSE(clean.filtered);
  EXPECT_EQ(clean.num_valid, 39);

  Batch sums = MakeBatch({0}, 40, options);
  const RowCounts rows[] = {dirty, clean};
  Summarize(rows, 40, LossDivisor::kOlmoCore, sums);
  EXPECT_EQ(sums.divisor, 39 + 40);  // OLMo-core adds the instance back
  Summarize(rows, 40, LossDivisor::kValidTokens, sums);
  EXPECT_EQ(sums.divisor, 39);
  EXPECT_EQ(sums.num_filtered, 1);
}

TEST(FillRow, PaddingHasNoLoss) {
  const FakeSource source({.num_instances = 1, .sequence_length = 40});
  RowCounts counts;
  const Batch batch = OneRow(
      source, {.filter_ngrams = true, .want_documents = true, .pad_token = 9}, kNoInstance, counts);
  EXPECT_THAT(batch.tokens.values<int32_t>(), Each(9));
  EXPECT_THAT(batch.loss_mask.values<uint8_t>(), Each(0));
  EXPECT_THAT(batch.segment_ids.values<int32_t>(), Each(kPaddingSegment));
  EXPECT_FALSE(counts.filtered);
  EXPECT_EQ(counts.num_valid, 0);
}

TEST(LossDivisor, IsNamed) {
  for (const LossDivisor divisor : {LossDivisor::kValidTokens, LossDivisor::kOlmoCore})
    EXPECT_EQ(*ParseLossDivisor(Name(divisor)), divisor);
  EXPECT_THAT(ParseLossDivisor("mean").status().message(), HasSubstr("valid_tokens, olmo_core"));
}

}  // namespace
}  // namespace ulmus::data
