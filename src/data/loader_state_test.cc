#include "data/loader_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/testing/fake_source.h"

namespace ulmus::data {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

std::unique_ptr<GlobalOrder> MakeOrder(const OrderConfig& config) {
  auto order = GlobalOrder::Create(config);
  EXPECT_TRUE(order.ok()) << order.status().message();
  return std::move(*order);
}

Ids Steps(const GlobalOrder& order, int64_t first, int64_t end) {
  Ids all;
  for (int64_t step = first; step < end; ++step) {
    const auto ids = order.InstancesOfStep(step);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    all.insert(all.end(), ids->begin(), ids->end());
  }
  return all;
}

LoaderState StateAt(int64_t step, const OrderConfig& config, const InstanceSource& source) {
  const auto order = MakeOrder(config);
  ConsumedIds consumed;
  const Ids ids = Steps(*order, config.start.step, step);
  consumed.Add(ids);
  auto state = StateBefore(step, *order, source,
                           static_cast<int64_t>(ids.size()) * source.sequence_length(), consumed);
  EXPECT_TRUE(state.ok()) << state.status().message();
  return *state;
}

TEST(LoaderState, SurvivesItsText) {
  const FakeSource source({.num_instances = 100});
  const LoaderState state = StateAt(
      30,
      {.seed = ~uint64_t{0} - 5, .num_instances = 100, .batch_size = 4, .end = EndPolicy::kWrap},
      source);
  EXPECT_EQ(state.epoch, 2);
  EXPECT_EQ(state.batches_processed, 5);
  EXPECT_EQ(state.tokens_processed, 5 * 4 * 8);
  const auto read = ParseLoaderState(PrintLoaderState(state));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, state);
}

TEST(LoaderState, RefusesTextThatIsNone) {
  const FakeSource source({});
  const std::string good =
      PrintLoaderState(StateAt(3, {.num_instances = 100, .batch_size = 4}, source));
  EXPECT_EQ(ParseLoaderState("").status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ParseLoaderState("[]").status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(ParseLoaderState("{}").status().message(),
              HasSubstr("`dataset_fingerprint_version` is missing"));
  std::string bad = good;
  bad.replace(bad.find("\"epoch\": 1"), 10, "\"epoch\": \"\"");
  EXPECT_THAT(ParseLoaderState(bad).status().message(), HasSubstr("`epoch` is \"\""));
}

// B01, B06, B07: stopped before the first batch, within each epoch, at an epoch's edge and after
// the last batch; the rest and the running hash equal those of the straight run.
TEST(LoaderState, ResumedRunsReadWhatStraightOnesDo) {
  const FakeSource source({.num_instances = 103});
  for (const OrderKind kind :
       {OrderKind::kOlmoCore, OrderKind::kMaxText, OrderKind::kGrain, OrderKind::kSequential}) {
    for (const EndPolicy end : {EndPolicy::kStop, EndPolicy::kWrap, EndPolicy::kPad}) {
      const OrderConfig config = {
          .kind = kind, .seed = 5, .num_instances = 103, .batch_size = 4, .end = end};
      const auto straight = MakeOrder(config);
      const int64_t steps = straight->num_steps().value_or(65);  // 2.5 epochs
      const LoaderState last = StateAt(steps, config, source);
      for (const int64_t step :
           {int64_t{0}, int64_t{1}, int64_t{13}, int64_t{25}, int64_t{26}, int64_t{60}, steps}) {
        if (step > steps) continue;
        const LoaderState state =
            *ParseLoaderState(PrintLoaderState(StateAt(step, config, source)));
        const auto resumed = Resume(state, source, config);
        ASSERT_TRUE(resumed.ok()) << resumed.status().message();
        const auto order = MakeOrder(*resumed);
        const Ids rest = Steps(*order, step, steps);
        EXPECT_EQ(rest, Steps(*straight, step, steps)) << Name(kind) << " from " << step;
        ConsumedIds consumed = state.consumed;
        consumed.Add(rest);
        EXPECT_EQ(consumed, last.consumed);
      }
    }
  }
}

TEST(LoaderState, TheCheckpointsSeedWins) {
  const FakeSource source({});
  const OrderConfig config = {.seed = 5, .num_instances = 100, .batch_size = 4};
  OrderConfig other = config;
  other.seed = 6;
  const auto resumed = Resume(StateAt(3, config, source), source, other);
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ(Steps(*MakeOrder(*resumed), 3, 25), Steps(*MakeOrder(config), 3, 25));
}

TEST(LoaderState, OtherDataIsAcceptedByNameOnly) {
  const FakeSource source({.fingerprint = "aaa"});
  const FakeSource moved({.fingerprint = "bbb"});
  const OrderConfig config = {.num_instances = 100, .batch_size = 4};
  const LoaderState state = StateAt(3, config, source);
  const Status refused = Resume(state, moved, config).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("data.accept_fingerprint = \"aaa\""));
  EXPECT_FALSE(Resume(state, moved, config, "bbb").ok());
  EXPECT_TRUE(Resume(state, moved, config, "aaa").ok());
}

// From step 6 of 4 instances on: batches of 8, 2, 24 divide; the instances go on without a gap.
TEST(LoaderState, TheBatchSizeMayChangeByWholeFactors) {
  const FakeSource source({.num_instances = 96});
  for (const OrderKind kind : {OrderKind::kOlmoCore, OrderKind::kGrain}) {
    const OrderConfig config = {.kind = kind, .seed = 5, .num_instances = 96, .batch_size = 4};
    const Ids straight = Steps(*MakeOrder(config), 0, 24);
    for (const int64_t batch : {8, 2, 24, 12}) {
      OrderConfig changed = config;
      changed.batch_size = batch;
      const auto resumed = Resume(StateAt(6, config, source), source, changed);
      ASSERT_TRUE(resumed.ok()) << resumed.status().message();
      const auto order = MakeOrder(*resumed);
      EXPECT_EQ(*order->num_steps(), 6 + 72 / batch);
      EXPECT_EQ(Steps(*order, 6, *order->num_steps()), Ids(straight.begin() + 24, straight.end()))
          << batch;
      // And once more, with the size it has now.
      const LoaderState later = StateAt(7, *resumed, source);
      const auto again = Resume(later, source, changed);
      ASSERT_TRUE(again.ok()) << again.status().message();
      EXPECT_EQ(Steps(*MakeOrder(*again), 7, *order->num_steps()),
                Steps(*order, 7, *order->num_steps()));
    }
  }
}

TEST(LoaderState, RefusesOtherBatchSizes) {
  const FakeSource source({.num_instances = 96});
  const OrderConfig config = {.num_instances = 96, .batch_size = 4};
  OrderConfig changed = config;
  changed.batch_size = 6;
  EXPECT_THAT(Resume(StateAt(6, config, source), source, changed).status().message(),
              HasSubstr("48 / 32 is no whole number"));
  changed.batch_size = 8;
  EXPECT_THAT(Resume(StateAt(5, config, source), source, changed).status().message(),
              HasSubstr("5 % 2 = 1"));
}

// T may change where M stays: the same tokens, in shorter instances.
TEST(LoaderState, TheSequenceLengthMayChangeWithinItsMaximum) {
  const FakeSource longer(
      {.num_instances = 24, .sequence_length = 8, .max_target_sequence_length = 16});
  const FakeSource shorter(
      {.num_instances = 48, .sequence_length = 4, .max_target_sequence_length = 16});
  const FakeSource other({.num_instances = 24, .sequence_length = 8});
  const OrderConfig config = {
      .seed = 5, .num_instances = 24, .batch_size = 4, .instances_per_chunk = 2};
  OrderConfig changed = {.seed = 5, .num_instances = 48, .batch_size = 8, .instances_per_chunk = 4};
  const LoaderState state = StateAt(3, config, longer);
  const auto resumed = Resume(state, shorter, changed);
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  Ids expected;
  for (const int64_t id : Steps(*MakeOrder(config), 3, 6)) {
    expected.push_back(id * 2);
    expected.push_back(id * 2 + 1);
  }
  EXPECT_EQ(Steps(*MakeOrder(*resumed), 3, 6), expected);
  EXPECT_THAT(
      Resume(state, other, {.seed = 5, .num_instances = 24, .batch_size = 4}).status().message(),
      HasSubstr("max_target_sequence_length is 16, the recipe's is 8"));
}

TEST(LoaderState, RefusesAnotherOrder) {
  const FakeSource source({});
  const LoaderState state = StateAt(3, {.num_instances = 100, .batch_size = 4}, source);
  EXPECT_THAT(
      Resume(state, source, {.kind = OrderKind::kGrain, .num_instances = 100, .batch_size = 4})
          .status()
          .message(),
      HasSubstr("data.order is olmo_core, the recipe's is grain"));
}

}  // namespace
}  // namespace ulmus::data
