#include "data/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "data/testing/testdata.h"

namespace ulmus::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

constexpr OrderKind kAllKinds[] = {OrderKind::kOlmoCore, OrderKind::kMaxText, OrderKind::kGrain,
                                   OrderKind::kSequential};

std::unique_ptr<GlobalOrder> MakeOrder(const OrderConfig& config) {
  auto order = GlobalOrder::Create(config);
  EXPECT_TRUE(order.ok()) << order.status().message();
  return order.ok() ? std::move(*order) : nullptr;
}

Ids Steps(const GlobalOrder& order, int64_t first, int64_t end) {
  Ids all;
  for (int64_t step = first; step < end; ++step) {
    const auto ids = order.InstancesOfStep(step);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    if (ids.ok()) all.insert(all.end(), ids->begin(), ids->end());
  }
  return all;
}

Status CreateError(const OrderConfig& config) { return GlobalOrder::Create(config).status(); }

TEST(GlobalOrder, OlmoCoreSeedsWithSeedPlusEpochFromOne) {
  const auto order =
      MakeOrder({.seed = 34521, .num_instances = 10, .batch_size = 5, .end = EndPolicy::kWrap});
  EXPECT_EQ(Steps(*order, 0, 2), (Ids{5, 9, 8, 4, 0, 6, 1, 2, 7, 3}));
  EXPECT_EQ(order->EpochNumber(0), 1);
}

TEST(GlobalOrder, MaxTextHashesSeedAndEpochFromZero) {
  const nlohmann::json golden = ReadTestJson("data_order.json")["maxtext_seed_epoch"];
  ASSERT_EQ(golden.size(), 4u);
  for (const nlohmann::json& entry : golden) {
    const auto epoch = entry["epoch"].get<int64_t>();
    const auto order = MakeOrder({.kind = OrderKind::kMaxText,
                                  .seed = entry["seed"].get<uint64_t>(),
                                  .num_instances = 16,
                                  .batch_size = 16,
                                  .end = EndPolicy::kWrap});
    EXPECT_EQ(Steps(*order, epoch, epoch + 1), entry["perm16"].get<Ids>());
    const auto large = MakeOrder({.kind = OrderKind::kMaxText,
                                  .seed = entry["seed"].get<uint64_t>(),
                                  .num_instances = 1000,
                                  .batch_size = 20,
                                  .end = EndPolicy::kWrap});
    EXPECT_EQ(Steps(*large, epoch * 50, epoch * 50 + 1), entry["perm1000_first20"].get<Ids>());
  }
}

// Grain's own IndexSampler over three epochs; batches run over the end of an epoch.
TEST(GlobalOrder, GrainGivesTheRecordsOfItsSampler) {
  const nlohmann::json golden = ReadTestJson("numpy_grain_order.json")["grain_epochs"];
  ASSERT_EQ(golden.size(), 2u);
  for (const nlohmann::json& entry : golden) {
    const auto keys = entry["keys"].get<Ids>();
    const auto order = MakeOrder({.kind = OrderKind::kGrain,
                                  .seed = entry["seed"].get<uint64_t>(),
                                  .num_instances = entry["n"].get<int64_t>(),
                                  .batch_size = 7,
                                  .end = EndPolicy::kWrap});
    EXPECT_EQ(Steps(*order, 0, static_cast<int64_t>(keys.size()) / 7), keys);
  }
}

TEST(GlobalOrder, ShufflesChunksAsOlmoCoreDoes) {
  const nlohmann::json golden = ReadTestJson("numpy_grain_order.json")["chunked"];
  ASSERT_EQ(golden.size(), 3u);
  for (const nlohmann::json& entry : golden) {
    auto expected = entry["order"].get<Ids>();
    const auto order = MakeOrder({.seed = entry["seed_plus_epoch"].get<uint64_t>() - 1,
                                  .num_instances = entry["n"].get<int64_t>(),
                                  .batch_size = 3,
                                  .instances_per_chunk = entry["chunk"].get<int64_t>()});
    EXPECT_EQ(*order->num_steps(), entry["len"].get<int64_t>() / 3);
    expected.resize(expected.size() / 3 * 3);
    EXPECT_EQ(Steps(*order, 0, static_cast<int64_t>(expected.size()) / 3), expected);
  }
}

// Four batches of 3 leave one instance of ten out of each epoch in the orders that drop the tail.
TEST(GlobalOrder, DropsTheTailWhereTheReferenceDoes) {
  const OrderConfig config = {
      .seed = 1, .num_instances = 10, .batch_size = 3, .end = EndPolicy::kWrap};
  for (const OrderKind kind : {OrderKind::kOlmoCore, OrderKind::kSequential}) {
    OrderConfig dropping = config;
    dropping.kind = kind;
    const auto order = MakeOrder(dropping);
    EXPECT_EQ(order->dropped_per_epoch(), 1);
    EXPECT_EQ(*order->PositionOfStep(3), (OrderPosition{3, 1, 0}));
  }
  for (const OrderKind kind : {OrderKind::kMaxText, OrderKind::kGrain}) {
    OrderConfig carrying = config;
    carrying.kind = kind;
    const auto order = MakeOrder(carrying);
    EXPECT_EQ(order->dropped_per_epoch(), 0);
    EXPECT_EQ(*order->PositionOfStep(4), (OrderPosition{4, 1, 2}));
    Ids all = Steps(*order, 0, 10);
    std::sort(all.begin(), all.begin() + 10);
    EXPECT_EQ(Ids(all.begin(), all.begin() + 10), (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
}

TEST(GlobalOrder, EachEpochHoldsEachInstanceOnceInAnOrderOfItsOwn) {
  for (const OrderKind kind : kAllKinds) {
    const auto order = MakeOrder(
        {.kind = kind, .seed = 7, .num_instances = 100, .batch_size = 4, .end = EndPolicy::kWrap});
    std::set<Ids> orders;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      Ids ids = Steps(*order, epoch * 25, (epoch + 1) * 25);
      orders.insert(ids);
      std::ranges::sort(ids);
      for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(ids[static_cast<size_t>(i)], i) << Name(kind);
    }
    EXPECT_EQ(orders.size(), kind == OrderKind::kSequential ? 1u : 3u) << Name(kind);
  }
}

// Another object that is asked for single steps, backwards, gives what a walk from the start gave.
TEST(GlobalOrder, StepsDoNotDependOnWhatWasAskedBefore) {
  for (const OrderKind kind : kAllKinds) {
    const OrderConfig config = {
        .kind = kind, .seed = 7, .num_instances = 53, .batch_size = 4, .end = EndPolicy::kWrap};
    const Ids walked = Steps(*MakeOrder(config), 0, 40);
    const auto order = MakeOrder(config);
    for (int64_t step = 39; step >= 0; --step)
      EXPECT_EQ(Steps(*order, step, step + 1),
                Ids(walked.begin() + step * 4, walked.begin() + step * 4 + 4));
  }
}

TEST(GlobalOrder, EndsAsThePolicySays) {
  const OrderConfig config = {.kind = OrderKind::kSequential, .num_instances = 10, .batch_size = 4};
  const auto with_end = [&config](EndPolicy end) {
    OrderConfig changed = config;
    changed.end = end;
    return MakeOrder(changed);
  };
  const auto stop = with_end(EndPolicy::kStop);
  EXPECT_EQ(stop->num_steps(), 2);
  const Status beyond = stop->InstancesOfStep(2).status();
  EXPECT_EQ(beyond.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(beyond.message(), HasSubstr("the data ends after step 1 (data.end = \"stop\")"));

  const auto pad = with_end(EndPolicy::kPad);
  EXPECT_EQ(pad->num_steps(), 3);
  EXPECT_EQ(pad->instances_per_epoch(), 10);
  EXPECT_THAT(Steps(*pad, 2, 3), ElementsAre(8, 9, kNoInstance, kNoInstance));

  const auto wrap = with_end(EndPolicy::kWrap);
  EXPECT_FALSE(wrap->num_steps().has_value());
  EXPECT_THAT(Steps(*wrap, 2, 4), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(GlobalOrder, PadsDataSmallerThanOneBatch) {
  const auto order = MakeOrder({.kind = OrderKind::kSequential,
                                .num_instances = 1,
                                .batch_size = 3,
                                .end = EndPolicy::kPad});
  EXPECT_THAT(Steps(*order, 0, 1), ElementsAre(0, kNoInstance, kNoInstance));
}

TEST(GlobalOrder, RefusesDataWithoutABatch) {
  EXPECT_THAT(CreateError({.num_instances = 0, .batch_size = 4}).message(),
              HasSubstr("0 instances"));
  const Status none = CreateError({.num_instances = 5, .batch_size = 8});
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr("zero batches: 5 instances give floor(5 / 8) = 0"));
}

TEST(GlobalOrder, RefusesWhatTheReferenceCannotCount) {
  const int64_t too_many = int64_t{1} << 32;
  EXPECT_THAT(CreateError({.num_instances = too_many, .batch_size = 8}).message(),
              HasSubstr("use order grain"));
  EXPECT_THAT(CreateError({.kind = OrderKind::kGrain,
                           .seed = uint64_t{1} << 32,
                           .num_instances = 9,
                           .batch_size = 8})
                  .message(),
              HasSubstr("seeds below 2^32"));
  EXPECT_EQ(DefaultOrderKind(724'000'000), OrderKind::kOlmoCore);
  EXPECT_EQ(DefaultOrderKind(too_many), OrderKind::kGrain);
}

// 1e13 tokens in instances of 1024 are more than 2^33 instances; step 10^9 of 8192 is token 8.4e15.
TEST(GlobalOrder, CountsIn64Bits) {
  const int64_t num_instances = 9'765'625'000;
  for (const OrderKind kind : {OrderKind::kGrain, OrderKind::kSequential}) {
    const auto order = MakeOrder({.kind = kind,
                                  .num_instances = num_instances,
                                  .batch_size = 8192,
                                  .end = EndPolicy::kWrap});
    const int64_t steps = 1'000'000'000;
    const auto position = order->PositionOfStep(steps);
    ASSERT_TRUE(position.ok());
    const int64_t length = kind == OrderKind::kGrain ? num_instances : num_instances / 8192 * 8192;
    EXPECT_EQ(position->epoch, steps * 8192 / length);
    EXPECT_EQ(position->instance, steps * 8192 % length);
    for (const int64_t id : Steps(*order, steps, steps + 1))
      EXPECT_TRUE(id >= 0 && id < num_instances);
    EXPECT_EQ(order->PositionOfStep(int64_t{1} << 60).status().code(), StatusCode::kOutOfRange);
  }
}

// A batch of twice the size from step 6 on reads what two batches would have read.
TEST(GlobalOrder, GoesOnWithAnotherBatchSize) {
  for (const OrderKind kind : kAllKinds) {
    OrderConfig config = {
        .kind = kind, .seed = 3, .num_instances = 64, .batch_size = 4, .end = EndPolicy::kWrap};
    const auto before = MakeOrder(config);
    config.start = *before->PositionOfStep(6);
    config.batch_size = 8;
    const auto after = MakeOrder(config);
    EXPECT_EQ(Steps(*after, 6, 16), Steps(*before, 6, 26)) << Name(kind);
    EXPECT_EQ(after->InstancesOfStep(5).status().code(), StatusCode::kOutOfRange);
  }
  const OrderConfig uneven = {
      .num_instances = 64, .batch_size = 8, .start = {.step = 5, .instance = 20}};
  EXPECT_THAT(CreateError(uneven).message(), HasSubstr("20 % 8 = 4"));
}

TEST(GlobalOrder, ReadsLargePermutationsFromFiles) {
  const TempDir dir;
  const OrderConfig config = {
      .seed = 34521, .num_instances = 1000, .batch_size = 10, .end = EndPolicy::kWrap};
  auto filed = GlobalOrder::Create(config, {.cache_dir = dir.path(), .max_in_memory = 10});
  ASSERT_TRUE(filed.ok());
  ASSERT_TRUE((*filed)->Prepare().ok());
  EXPECT_TRUE(*PathExists(dir.path() / "numpy-pcg64-n1000-seed34522.perm"));
  EXPECT_EQ(Steps(**filed, 95, 105), Steps(*MakeOrder(config), 95, 105));
}

// The 600 batches of a run made with OLMo-core's rules: SHA-256 of the ids of each as little-endian
// uint32, and SHA-256 of all those digests in hexadecimal.
TEST(GlobalOrder, GivesTheBatchesOfTheReferenceRun) {
  const auto order = MakeOrder({.seed = 34521, .num_instances = 10138, .batch_size = 16});
  EXPECT_EQ(order->num_steps(), 633);
  Sha256 all;
  for (int64_t step = 0; step < 600; ++step) {
    const Ids ids = *order->InstancesOfStep(step);
    const std::vector<uint32_t> words(ids.begin(), ids.end());
    const std::string digest = Sha256Hex(std::as_bytes(std::span(words)));
    if (step == 0) {
      EXPECT_EQ(digest, "89bf2b113f78a4730a37cd2f3ee3c51942f1a7b21680302228691908dd09d9b3");
    }
    all.Update(digest);
  }
  EXPECT_EQ(all.hex(), "0f249b52bc15fe7794d56c3015ce027079a98a7fcbc3c84b9e249221888d936b");
}

TEST(OrderNames, AreParsedAndListed) {
  for (const OrderKind kind : kAllKinds) EXPECT_EQ(*ParseOrderKind(Name(kind)), kind);
  EXPECT_THAT(ParseOrderKind("olmo").status().message(),
              HasSubstr("no order `olmo`; there are olmo_core, maxtext, grain, sequential"));
  EXPECT_THAT(ParseEndPolicy("halt").status().message(), HasSubstr("stop, wrap, pad"));
}

}  // namespace
}  // namespace ulmus::data
