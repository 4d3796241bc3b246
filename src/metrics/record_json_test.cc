#include "metrics/record_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "metrics/record_testing.h"

namespace ulmus::metrics {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(RecordJson, KeepsEveryBitOfAStep) {
  StepRecord record = TestStep(3);
  record.loss = 0.1 + 0.2;
  record.z_loss = std::numeric_limits<double>::denorm_min();
  record.grad_norm = -0.0;
  record.tokens = std::numeric_limits<int64_t>::max();
  record.mfu = 1.0 / 3;
  record.device_bytes = 5;
  record.norms = {{"grad_norm/model.layers.1", 2.5}, {"grad_norm/model.layers.0", 1e300}};
  const Result<Record> read = ParseRecord(ToJson(record));
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(*read, Record(record));
  EXPECT_TRUE(std::signbit(std::get<StepRecord>(*read).grad_norm));
}

TEST(RecordJson, KeepsEvaluationsAndEvents) {
  const EvalRecord eval{.step = 20, .set = "bible", .loss = {123.456, 789}, .wall_time_s = 1.5};
  const EventRecord event{
      .step = 20, .name = "save", .text = "\"quoted\", a\ttab\nand \xc3\xa4", .wall_time_s = 2.5};
  EXPECT_EQ(*ParseRecord(ToJson(eval)), Record(eval));
  EXPECT_EQ(*ParseRecord(ToJson(event)), Record(event));
  EXPECT_THAT(ToJson(event), Not(HasSubstr("\n")));
}

// A step that blew up must reach the file, and JSON has no word for its numbers.
TEST(RecordJson, KeepsNumbersThatAreNotFinite) {
  StepRecord record = TestStep(1);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.update_norm = -std::numeric_limits<double>::infinity();
  const std::string line = ToJson(record);
  EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  const Result<Record> read = ParseRecord(line);
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_TRUE(std::isnan(std::get<StepRecord>(*read).loss));
  EXPECT_EQ(std::get<StepRecord>(*read).grad_norm, record.grad_norm);
  EXPECT_EQ(std::get<StepRecord>(*read).update_norm, record.update_norm);
}

TEST(RecordJson, LeavesOutWhatIsNotKnown) {
  EXPECT_THAT(ToJson(TestStep(1)), Not(HasSubstr("\"mfu\"")));
  EXPECT_THAT(ToJson(TestStep(1)), Not(HasSubstr("\"norms\"")));
  EXPECT_THAT(ToJson(TestStep(1)), HasSubstr("\"perplexity\":"));
}

TEST(RecordJson, PassesOverKeysOfLaterVersions) {
  std::string line = ToJson(TestStep(1));
  line.insert(1, R"("new":[{"a":1}],)");
  EXPECT_EQ(*ParseRecord(line), Record(TestStep(1)));
}

TEST(RecordJson, SaysWhatIsWrong) {
  const auto without = [](std::string_view key) {
    auto object = nlohmann::json::parse(ToJson(TestStep(1)));
    object.erase(std::string(key));
    return object.dump();
  };
  const auto with = [](std::string_view key, const nlohmann::json& value) {
    auto object = nlohmann::json::parse(ToJson(TestStep(1)));
    object[std::string(key)] = value;
    return object.dump();
  };
  const std::pair<std::string, std::string> cases[] = {
      {"", "not a JSON object"},
      {"{\"kind\":\"step\",", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {"{\"kind\":\"step\",\"kind\":\"eval\"}", "not a JSON object"},
      {"{}", "\"kind\" is missing"},
      {"{\"kind\":\"stop\"}", "expected step, eval or event"},
      {without("loss"), "\"loss\" is missing or not a number"},
      {without("id_hash"), "\"id_hash\" is missing or not a string"},
      {with("loss", "high"), "\"loss\" is missing or not a number"},
      {with("step", 1.5), "\"step\" is missing or not an integer"},
      {with("tokens", uint64_t{1} << 63), "\"tokens\" is missing or not an integer"},
      {with("mfu", nullptr), "\"mfu\" is missing or not a number"},
      {with("norms", {{"a", "b"}}), "\"norms\" is missing or not an object of numbers"},
  };
  for (const auto& [line, message] : cases) {
    const Result<Record> read = ParseRecord(line);
    ASSERT_FALSE(read.ok()) << line;
    EXPECT_EQ(read.error().code(), StatusCode::kDataLoss);
    EXPECT_THAT(read.error().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace ulmus::metrics
