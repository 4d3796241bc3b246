#include "data/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "data/testing/fake_source.h"

namespace ulmus::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<GlobalOrder> MakeOrder(const OrderConfig& config) {
  auto order = GlobalOrder::Create(config);
  EXPECT_TRUE(order.ok()) << order.status().message();
  return std::move(*order);
}

AuditReport AuditOf(const OrderConfig& config, const AuditOptions& options) {
  const FakeSource source({.num_instances = config.num_instances});
  auto report = AuditEpoch(*MakeOrder(config), source, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return std::move(*report);
}

TEST(UsageCount, CountsAndLists) {
  UsageCount usage(130);
  for (const int64_t id : {0, 5, 5, 5, 64, 129, 130, -1, 64}) usage.Add(id);
  EXPECT_EQ(usage.records(), 9);
  EXPECT_EQ(usage.used_once(), 2);
  EXPECT_EQ(usage.repeated(), 2);
  EXPECT_EQ(usage.missing(), 126);
  EXPECT_EQ(usage.unknown(), 2);
  EXPECT_THAT(usage.RepeatedIds(10), ElementsAre(5, 64));
  EXPECT_THAT(usage.MissingIds(5), ElementsAre(1, 2, 3, 4, 6));
  EXPECT_EQ(usage.MissingIds(1000).size(), 126u);
}

TEST(Audit, HoldsForAllOrdersHostsStopsAndResizes) {
  for (const OrderKind kind :
       {OrderKind::kOlmoCore, OrderKind::kMaxText, OrderKind::kGrain, OrderKind::kSequential}) {
    for (const EndPolicy end : {EndPolicy::kStop, EndPolicy::kWrap, EndPolicy::kPad}) {
      const AuditReport report = AuditOf(
          {.kind = kind, .seed = 3, .num_instances = 1003, .batch_size = 16, .end = end},
          {.hosts = {1, 4, 16}, .resume_at = {0, 7, 62}, .resizes = {{8, 4, 31}, {1, 16, 1}}});
      EXPECT_TRUE(report.holds) << Name(kind) << " " << Name(end);
      EXPECT_EQ(report.runs.size(), 3u * 4 + 2);
      EXPECT_EQ(report.usage.repeated(), 0);
      EXPECT_EQ(report.usage.missing(), report.dropped);
      EXPECT_EQ(report.usage.used_once(), 1003 - report.dropped);
      EXPECT_EQ(report.usage.unknown(), 0);
    }
  }
}

TEST(Audit, NamesTheRowOfOverlappingSlices) {
  AuditOptions options = {.hosts = {4}};
  options.rows_of_host = [](const BatchLayout& layout, int64_t host) {
    std::vector<int64_t> rows = RowsOfHost(layout, host);
    if (host == 2) rows[0] = 0;
    return rows;
  };
  const AuditReport report = AuditOf({.num_instances = 64, .batch_size = 8}, options);
  EXPECT_FALSE(report.holds);
  EXPECT_EQ(report.runs[0].failure, "step 0: row 0 is read by host 2 and by another");
}

TEST(Audit, NamesTheRowThatNobodyReads) {
  AuditOptions options = {.hosts = {4}};
  options.rows_of_host = [](const BatchLayout& layout, int64_t host) {
    std::vector<int64_t> rows = RowsOfHost(layout, host);
    if (host == 3) rows.pop_back();
    return rows;
  };
  const AuditReport report = AuditOf({.num_instances = 64, .batch_size = 8}, options);
  EXPECT_FALSE(report.holds);
  EXPECT_EQ(report.runs[0].failure, "step 0: row 7 is read by no host");
}

TEST(Audit, RefusesWhatCannotBe) {
  const FakeSource source({.num_instances = 64});
  const auto order = MakeOrder({.num_instances = 64, .batch_size = 8});
  EXPECT_THAT(AuditEpoch(*order, source, {.hosts = {3}}).status().message(),
              HasSubstr("8 / (1 * 3 * 1)"));
  EXPECT_THAT(AuditEpoch(*order, source, {.resume_at = {9}}).status().message(),
              HasSubstr("steps 0 to 7"));
  EXPECT_THAT(AuditEpoch(*order, source, {.resizes = {{8, 3, 1}}}).status().message(),
              HasSubstr("8 / (1 * 3 * 1)"));
}

TEST(ParseResize, TakesThreeNumbers) {
  const auto resize = ParseResize("8:4@1000");
  ASSERT_TRUE(resize.ok());
  EXPECT_EQ(resize->hosts_before, 8);
  EXPECT_EQ(resize->hosts_after, 4);
  EXPECT_EQ(resize->step, 1000);
  for (const char* text : {"", "8", "8:4", "8@4:1", ":4@1", "8:4@", "8:4@x", "8:4@1 "})
    EXPECT_EQ(ParseResize(text).status().code(), StatusCode::kInvalidArgument) << text;
}

// MaxText's olmo_grain on four hosts, one nominal epoch of 64 records: Grain's loader hands local
// record i of a host to the sampler as i * 4 + host, and the sampler slices again, by blocks.
TEST(CountLoggedIds, FindsMaxTextsDoubleSharding) {
  constexpr int64_t kHosts = 4, kRecords = 64, kBlock = kRecords / kHosts;
  const auto order = MakeOrder({.kind = OrderKind::kMaxText,
                                .seed = 0,
                                .num_instances = kRecords,
                                .batch_size = kRecords,
                                .end = EndPolicy::kWrap});
  std::string log = "# ids of each host\n";
  for (int64_t host = 0; host < kHosts; ++host) {
    for (int64_t local = 0; local < kBlock; ++local) {
      const int64_t index = local * kHosts + host;
      const std::vector<int64_t> epoch = *order->InstancesOfStep(index / kBlock);
      log += fmt::format("{},", epoch[static_cast<size_t>(host * kBlock + index % kBlock)]);
    }
    log += "\n";
  }
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.path() / "ids", log).ok());
  const auto usage = CountLoggedIds(dir.path() / "ids", kRecords);
  ASSERT_TRUE(usage.ok()) << usage.status().message();
  EXPECT_EQ(usage->records(), 64);
  EXPECT_EQ(usage->used_once() + usage->repeated(), 47);
  EXPECT_EQ(usage->missing(), 17);
}

TEST(CountLoggedIds, ReadsNumbersHoweverTheyAreSeparated) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.path() / "ids", "3 1,2\r\n\n 0#9 9\n7").ok());
  const auto usage = CountLoggedIds(dir.path() / "ids", 8);
  ASSERT_TRUE(usage.ok());
  EXPECT_EQ(usage->records(), 5);
  EXPECT_THAT(usage->MissingIds(9), ElementsAre(4, 5, 6));
  EXPECT_THAT(usage->RepeatedIds(9), IsEmpty());
}

TEST(CountLoggedIds, RefusesMoreInstancesThanItCanCount) {
  for (const int64_t count : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::max()})
    EXPECT_EQ(CountLoggedIds("ids", count).status().code(), StatusCode::kInvalidArgument) << count;
}

TEST(CountLoggedIds, NamesTheLineThatIsNone) {
  const TempDir dir;
  ASSERT_TRUE(WriteFileAtomic(dir.path() / "ids", "3\n-1\n").ok());
  EXPECT_THAT(CountLoggedIds(dir.path() / "ids", 8).status().message(),
              HasSubstr("ids:2: character 0x2d"));
  ASSERT_TRUE(WriteFileAtomic(dir.path() / "ids", "99999999999999999999").ok());
  EXPECT_THAT(CountLoggedIds(dir.path() / "ids", 8).status().message(),
              HasSubstr("ids:1: a number beyond"));
  EXPECT_EQ(CountLoggedIds(dir.path() / "none", 8).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace ulmus::data
