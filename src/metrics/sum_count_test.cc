#include "metrics/sum_count.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ulmus::metrics {
namespace {

// B22 of the public cases.
TEST(SumCount, IsNoMeanOfMeans) {
  const SumCount all = SumCount{2, 1} + SumCount{90, 9};
  EXPECT_EQ(all.mean(), 9.2);  // a mean of means is 6
  EXPECT_EQ(all, (SumCount{92, 10}));
}

TEST(SumCount, IsTheSameForAnyBatchSizeAndNumberOfShards) {
  // Losses in eighths, so that all sums are exact; every third item is masked.
  std::vector<SumCount> items;
  for (int k = 0; k < 96; ++k) items.push_back(k % 3 == 0 ? SumCount{} : SumCount{k / 8.0, k % 5});
  SumCount whole;
  for (const SumCount& item : items) whole += item;
  for (const size_t size : {1u, 2u, 7u, 32u, 96u}) {
    SumCount batched;
    for (size_t begin = 0; begin < items.size(); begin += size) {
      SumCount batch;
      for (size_t k = begin; k < std::min(begin + size, items.size()); ++k) batch += items[k];
      batched += batch;
    }
    EXPECT_EQ(batched, whole) << "batches of " << size;
  }
  for (const size_t num_shards : {2u, 4u, 8u}) {
    std::vector<SumCount> shards(num_shards);
    for (size_t k = 0; k < items.size(); ++k) shards[k % num_shards] += items[k];
    SumCount sharded;
    for (const SumCount& shard : shards) sharded += shard;
    EXPECT_EQ(sharded, whole) << num_shards << " shards";
  }
}

TEST(SumCount, NothingCountedHasNoMean) { EXPECT_TRUE(std::isnan(SumCount{}.mean())); }

}  // namespace
}  // namespace ulmus::metrics
