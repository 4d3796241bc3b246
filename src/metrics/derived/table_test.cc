#include "metrics/derived/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

namespace ulmus::metrics {
namespace {

std::map<std::string, std::optional<double>> Compute(const StepRecord& record) {
  std::map<std::string, std::optional<double>> values;
  for (const DerivedMetric& metric : DerivedMetrics())
    EXPECT_TRUE(values.emplace(metric.name, metric.compute(record)).second) << metric.name;
  return values;
}

TEST(DerivedMetrics, FollowFromTheRecord) {
  StepRecord record;
  record.loss = std::log(8.0);
  record.z_loss = 0.5;
  record.step_s = 4;
  record.data_wait_s = 1;
  auto values = Compute(record);
  EXPECT_NEAR(values["bits_per_token"].value(), 3, 1e-15);
  EXPECT_NEAR(values["perplexity"].value(), 8, 1e-14);
  EXPECT_EQ(values["total_loss"].value(), std::log(8.0) + 0.5);
  EXPECT_EQ(values["data_wait_share"].value(), 0.25);
}

TEST(DerivedMetrics, HaveNoValueWhereThereIsNone) {
  EXPECT_EQ(Compute(StepRecord())["data_wait_share"], std::nullopt);
}

}  // namespace
}  // namespace ulmus::metrics
