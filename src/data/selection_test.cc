#include "data/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/config.h"
#include "data/instance_source_conformance.h"
#include "data/testing/fake_source.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;

std::unique_ptr<InstanceSource> Select(const Path& ids, FakeSourceOptions all = {}) {
  auto source = MakeSelection(std::make_unique<FakeSource>(std::move(all)), ids);
  CHECK(source.ok(), "{}", source.status().message());
  return std::move(*source);
}

Status Refusal(const Path& ids, FakeSourceOptions all = {}) {
  return MakeSelection(std::make_unique<FakeSource>(std::move(all)), ids).status();
}

TEST(Selection, Conforms) {
  const TempDir dir;
  const Path ids = WriteTokens<uint32_t>(dir.path() / "ids", {99, 3, 3, 0});
  ExpectConforms(*Select(ids), *Select(ids));
}

TEST(Selection, NumbersInstancesAsTheFileSays) {
  const TempDir dir;
  const auto source = Select(WriteTokens<uint32_t>(dir.path() / "ids", {99, 3, 3}));
  ASSERT_EQ(source->num_instances(), 3);
  EXPECT_EQ(ReadInstance(*source, 0).tokens[0], 99 * 8);
  EXPECT_EQ(ReadInstance(*source, 2).tokens, ReadInstance(*source, 1).tokens);
  EXPECT_EQ(source->Describe(1)->ranges[0].first_token, 3 * 8);
}

// Or a run would go on with other data after its file was changed.
TEST(Selection, FingerprintIsOfDataAndIds) {
  const TempDir dir;
  const Path ids = WriteTokens<uint32_t>(dir.path() / "ids", {1, 2});
  const std::string fingerprint = Select(ids)->fingerprint();
  EXPECT_EQ(Select(ids)->fingerprint(), fingerprint);
  EXPECT_NE(Select(ids, {.fingerprint = "other"})->fingerprint(), fingerprint);
  EXPECT_NE(Select(WriteTokens<uint32_t>(dir.path() / "b", {2, 1}))->fingerprint(), fingerprint);
}

TEST(Selection, RefusesWhatNamesNoInstance) {
  const TempDir dir;
  const auto message = [&](const Path& ids, StatusCode code, FakeSourceOptions all = {}) {
    const Status status = Refusal(ids, std::move(all));
    EXPECT_EQ(status.code(), code);
    return status.message();
  };
  EXPECT_THAT(message(WriteTokens<uint32_t>(dir.path() / "a", {99, 100}), StatusCode::kDataLoss),
              HasSubstr("number 1 is 100, but the dataset has the instances 0 to 99"));
  EXPECT_THAT(
      message(WriteTokens<uint8_t>(dir.path() / "b", {1, 0, 0, 0, 1}), StatusCode::kDataLoss),
      HasSubstr("5 bytes"));
  EXPECT_THAT(message(WriteTokens<uint32_t>(dir.path() / "c", {}), StatusCode::kDataLoss),
              HasSubstr("0 bytes"));
  EXPECT_EQ(Refusal(dir.path() / "none").code(), StatusCode::kNotFound);
  EXPECT_THAT(message(WriteTokens<uint32_t>(dir.path() / "d", {0}), StatusCode::kInvalidArgument,
                      {.max_target_sequence_length = 16}),
              HasSubstr("2 pieces of 8 tokens"));
}

// A subset that is gone over more than once, each time in another order.
TEST(Selection, OfARecipe) {
  const TempDir dir;
  WriteTokens<uint32_t>(dir.path() / "a.npy", Counting(0, 20));
  WriteTokens<uint32_t>(dir.path() / "ids", {9, 0, 4, 7});
  DataConfig config;
  config.paths = {"a.npy"};
  config.base_dir = dir.path();
  config.select = "ids";
  config.sequence_length = 2;
  config.global_batch = 4;
  config.end = "wrap";
  const auto data = OpenData(config);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->source->num_instances(), 4);
  EXPECT_EQ(ReadInstance(*data->source, 3).tokens[0], 14);
  for (int64_t step = 0; step < 3; ++step)
    EXPECT_THAT(*data->order->InstancesOfStep(step), testing::UnorderedElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace ulmus::data
