#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "data/id_hash.h"
#include "data/loader_state.h"
#include "data/testing/fake_source.h"

namespace ulmus::data {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;

std::unique_ptr<GlobalOrder> MakeOrder(const OrderConfig& config) {
  auto order = GlobalOrder::Create(config);
  EXPECT_TRUE(order.ok()) << order.status().message();
  return std::move(*order);
}

std::unique_ptr<Loader> MakeLoader(const InstanceSource& source, const GlobalOrder& order,
                                   const LoaderOptions& options = {}) {
  auto loader = Loader::Create(source, order, options);
  EXPECT_TRUE(loader.ok()) << loader.status().message();
  return std::move(*loader);
}

// The next batch, or null at the end.
const Batch* Next(Loader& loader) {
  const Result<const Batch*> batch = loader.Next();
  EXPECT_TRUE(batch.ok()) << batch.status().message();
  return batch.ok() ? *batch : nullptr;
}

// All tokens of all batches that are left.
Tokens Drain(Loader& loader) {
  Tokens all;
  while (const Batch* batch = Next(loader)) {
    const auto tokens = batch->tokens.values<int32_t>();
    all.insert(all.end(), tokens.begin(), tokens.end());
  }
  return all;
}

TEST(Loader, BatchesHoldTheInstancesOfTheirStep) {
  const FakeSource source({.num_instances = 50});
  const auto order = MakeOrder({.seed = 1, .num_instances = 50, .batch_size = 6});
  const auto loader = MakeLoader(source, *order);
  for (int64_t step = 0; step < 8; ++step) {
    const Batch* batch = Next(*loader);
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->step, step);
    EXPECT_EQ(batch->global_ids, *order->InstancesOfStep(step));
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t t = 0; t < 8; ++t)
        EXPECT_EQ(batch->tokens.Get(row * 8 + t), static_cast<double>(batch->id(row) * 8 + t));
    }
    EXPECT_EQ(batch->divisor, 6 * 7);
  }
  EXPECT_EQ(Next(*loader), nullptr);
  EXPECT_EQ(Next(*loader), nullptr);
  EXPECT_EQ(loader->stats().tokens, 8 * 6 * 8);
}

TEST(Loader, SameForAnyThreadsAndReadAhead) {
  const FakeSource source({.num_instances = 203});
  const auto order = MakeOrder({.seed = 1, .num_instances = 203, .batch_size = 10});
  const Tokens expected = Drain(*MakeLoader(source, *order, {.num_threads = 1, .read_ahead = 2}));
  ASSERT_EQ(expected.size(), 1600u);
  for (const int64_t threads : {2, 5}) {
    for (const int64_t read_ahead : {2, 3, 30})
      EXPECT_EQ(
          Drain(*MakeLoader(source, *order, {.num_threads = threads, .read_ahead = read_ahead})),
          expected);
  }
}

// Put together, the rows of all hosts are the global batch, for any number of hosts and
// microbatches.
TEST(Loader, HostsReadSlicesOfOneGlobalBatch) {
  const FakeSource source({.num_instances = 64});
  const auto order = MakeOrder({.seed = 1, .num_instances = 64, .batch_size = 16});
  const Tokens expected = Drain(*MakeLoader(source, *order));
  for (const int64_t hosts : {2, 4, 8}) {
    for (const int64_t microbatches : {1, 2}) {
      Tokens together(expected.size(), -1);
      ConsumedIds whole;
      for (int64_t host = 0; host < hosts; ++host) {
        const auto loader = MakeLoader(
            source, *order,
            {.layout = {.num_microbatches = microbatches, .num_hosts = hosts}, .host = host});
        ConsumedIds consumed;
        for (int64_t step = 0; const Batch* batch = Next(*loader); ++step) {
          consumed.Add(batch->global_ids);
          const auto tokens = batch->tokens.values<int32_t>();
          for (size_t row = 0; row < batch->rows.size(); ++row) {
            const int64_t place = (step * 16 + batch->rows[row]) * 8;
            std::copy_n(tokens.begin() + static_cast<ptrdiff_t>(row) * 8, 8,
                        together.begin() + place);
          }
        }
        // The hash of the consumed ids is every host's.
        if (host > 0) {
          EXPECT_EQ(consumed, whole);
        }
        whole = consumed;
      }
      EXPECT_EQ(together, expected) << hosts << " hosts, " << microbatches << " microbatches";
    }
  }
}

TEST(Loader, SeeksToAnyStepWithoutReadingWhatLiesBetween) {
  const FakeSource source({.num_instances = 1'000'000});
  const auto order = MakeOrder({.kind = OrderKind::kGrain,
                                .num_instances = 1'000'000,
                                .batch_size = 4,
                                .end = EndPolicy::kWrap});
  const auto loader = MakeLoader(source, *order, {.first_step = 1'000'000'000});
  for (const int64_t step :
       {int64_t{1'000'000'000}, int64_t{5}, int64_t{6}, int64_t{123'456}, int64_t{0}}) {
    if (loader->next_step() != step) loader->SeekTo(step);
    const Batch* batch = Next(*loader);
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->step, step);
    EXPECT_EQ(batch->global_ids, *order->InstancesOfStep(step));
  }
  EXPECT_LT(source.num_reads(), 5 * 4 * 10);
}

TEST(Loader, ReadsAheadNoFurtherThanAsked) {
  const FakeSource source({.num_instances = 1000});
  const auto order = MakeOrder({.num_instances = 1000, .batch_size = 10});
  const auto loader = MakeLoader(source, *order, {.read_ahead = 3});
  Next(*loader);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(source.num_reads(), 30);
}

TEST(Loader, AnErrorComesAtItsStep) {
  const auto order =
      MakeOrder({.kind = OrderKind::kSequential, .num_instances = 40, .batch_size = 4});
  const FakeSource source({.num_instances = 40, .failing_instance = 13});
  const auto loader = MakeLoader(source, *order, {.read_ahead = 6});
  for (int64_t step = 0; step < 3; ++step) EXPECT_NE(Next(*loader), nullptr);
  for (int i = 0; i < 2; ++i) {
    const Result<const Batch*> failed = loader->Next();
    ASSERT_EQ(failed.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(failed.status().message(),
                HasSubstr("batch of step 3: instance 13: fake file: instance 13 is damaged"));
  }
  loader->SeekTo(4);
  EXPECT_EQ(Next(*loader)->step, 4);
}

TEST(Loader, StopsInTheMiddle) {
  const FakeSource source({.num_instances = 1000, .sequence_length = 4096});
  const auto order = MakeOrder({.num_instances = 1000, .batch_size = 50});
  for (int batches = 0; batches < 4; ++batches) {
    const auto loader = MakeLoader(source, *order, {.num_threads = 3});
    for (int i = 0; i < batches; ++i) Next(*loader);
  }
}

// B05: the accumulation changes, the global batch does not.
TEST(Loader, AccumulationDoesNotMoveTheNextBatch) {
  const FakeSource source({.num_instances = 64});
  const auto order = MakeOrder({.seed = 1, .num_instances = 64, .batch_size = 8});
  for (const int64_t microbatches : {1, 2, 4}) {
    const auto loader =
        MakeLoader(source, *order, {.layout = {.num_microbatches = microbatches}, .first_step = 5});
    EXPECT_EQ(Next(*loader)->global_ids, *order->InstancesOfStep(5));
  }
}

// B09: every host has the same last step, and no batch of padding alone.
TEST(Loader, HostsAgreeOnTheLastStep) {
  const FakeSource source({.num_instances = 22});
  for (const auto& [end, steps] : {std::pair{EndPolicy::kStop, 2}, std::pair{EndPolicy::kPad, 3}}) {
    const auto order = MakeOrder({.num_instances = 22, .batch_size = 8, .end = end});
    int64_t padded_rows = 0;
    int64_t valid = 0;
    for (int64_t host = 0; host < 2; ++host) {
      const auto loader = MakeLoader(source, *order, {.layout = {.num_hosts = 2}, .host = host});
      int64_t count = 0;
      while (const Batch* batch = Next(*loader)) {
        ++count;
        valid += batch->num_valid;
        padded_rows += std::ranges::count_if(batch->rows, [&](int64_t row) {
          return batch->global_ids[static_cast<size_t>(row)] == kNoInstance;
        });
      }
      EXPECT_EQ(count, steps);
    }
    EXPECT_EQ(padded_rows, end == EndPolicy::kPad ? 2 : 0);
    EXPECT_EQ(valid, 7 * (end == EndPolicy::kPad ? 22 : 16));
  }
}

TEST(Loader, RefusesMoreHostsThanRows) {
  const FakeSource source({.num_instances = 10});
  const auto order = MakeOrder({.num_instances = 10, .batch_size = 1});
  EXPECT_THAT(Loader::Create(source, *order, {.layout = {.num_hosts = 4}}).status().message(),
              HasSubstr("1 / (1 * 4 * 1)"));
  EXPECT_THAT(Loader::Create(source, *order, {.host = 1}).status().message(),
              HasSubstr("host 1 of 1"));
  EXPECT_THAT(Loader::Create(source, *order, {.read_ahead = 1}).status().message(),
              HasSubstr("read_ahead = 1"));
}

TEST(Loader, MeasuresTheWait) {
  const FakeSource slow({.num_instances = 40, .token = [](int64_t, int64_t t) {
                           if (t == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
                           return static_cast<int32_t>(t);
                         }});
  const auto order = MakeOrder({.num_instances = 40, .batch_size = 8});
  const auto loader = MakeLoader(slow, *order, {.num_threads = 1});
  Drain(*loader);
  EXPECT_GT(loader->stats().wait_s, 0.04);
  EXPECT_EQ(loader->stats().batches, 5);
}

}  // namespace
}  // namespace ulmus::data
