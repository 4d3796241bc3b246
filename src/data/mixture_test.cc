#include "data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "data/instance_source_conformance.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using testing::HasSubstr;
using Ints = std::vector<int64_t>;

MixturePlan PlanOrDie(const std::vector<MixtureSource>& sources, const MixtureOptions& options) {
  const Result<MixturePlan> plan = PlanMixture(sources, options);
  CHECK(plan.ok(), "{}", plan.status().message());
  return *plan;
}

Ints Instances(const MixturePlan& plan) {
  Ints instances;
  for (const MixtureEntry& entry : plan.entries) instances.push_back(entry.num_instances);
  return instances;
}

// B13 of the public cases: thirds of a total that is no multiple of three instances.
TEST(Mixture, GivesExactlyWhatIsAskedAndNoInstanceTwice) {
  const TempDir dir;
  std::vector<TokenFileSpec> specs;
  std::vector<MixtureSource> sources;
  for (int i = 0; i < 3; ++i) {
    specs.push_back({WriteTokens<uint32_t>(dir.path() / std::to_string(i), Counting(1, 1000))});
    sources.push_back({.label = "s", .file_tokens = {1000}, .target_ratio = 1.0 / 3});
  }
  const MixtureOptions options = {
      .requested_tokens = 1000, .global_batch_tokens = 32, .sequence_length = 8};
  const MixturePlan plan = PlanOrDie(sources, options);
  EXPECT_EQ(plan.target_instances, 128);
  EXPECT_EQ(plan.num_instances, 128);
  const auto files = OpenOrDie(specs);
  const auto source = MakeMixture(files, options, plan, {});
  const auto again = MakeMixture(files, options, plan, {});
  ASSERT_TRUE(source.ok()) << source.status().message();
  ExpectConforms(**source, **again);
  std::set<std::pair<std::string, int64_t>> seen;
  for (int64_t i = 0; i < (*source)->num_instances(); ++i) {
    const TokenRange range = (*source)->Describe(i)->ranges[0];
    EXPECT_TRUE(seen.emplace(range.file.string(), range.first_token).second);
  }
  EXPECT_EQ(seen.size(), 128);
}

// Worked by hand from OLMo-core's rule: sources of 60 % and 40 % of 100 tokens, instances of 8.
// Shares are 60 and 20 + 20 tokens: 7, 2 and 2 instances of 13. All remainders are 4/8, of which
// the later ones win.
TEST(Mixture, RoundsAsOlmoCoreDoes) {
  const std::vector<MixtureSource> sources = {
      {.label = "a", .file_tokens = {200}, .target_ratio = 0.6},
      {.label = "b", .file_tokens = {50, 50}, .target_ratio = 0.4}};
  const MixtureOptions options = {
      .requested_tokens = 100, .global_batch_tokens = 8, .sequence_length = 8, .exact = false};
  // ceil(100 / 8) = 13 instances; 13 - 11 = 2 missing, 2 div 3 = 0, so one each to b's files.
  const MixturePlan plan = PlanOrDie(sources, options);
  EXPECT_EQ(Instances(plan), (Ints{7, 3, 3}));
  const MixtureSourcePlan& b = plan.sources[1];
  EXPECT_EQ(b.asked_tokens, 40);
  EXPECT_EQ((Ints{b.whole, b.even, b.remainder, b.exact, b.num_instances}), (Ints{4, 0, 2, 0, 6}));
  EXPECT_EQ(b.unused_tokens, 100 - 6 * 8);
  EXPECT_EQ(plan.sources[0].whole, 7);
}

TEST(Mixture, ExactAgreesWithOlmoCoreWhereThatMeetsTheTotal) {
  std::mt19937 random(1);
  int compared = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<MixtureSource> sources;
    const int num_sources = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < num_sources; ++i) {
      MixtureSource source{
          .label = "s", .target_ratio = 1.0 / num_sources, .max_repetition_ratio = 4};
      for (uint32_t f = 0; f <= random() % 5; ++f)
        source.file_tokens.push_back(50 + static_cast<int64_t>(random() % 400));
      sources.push_back(source);
    }
    MixtureOptions options = {.requested_tokens = 100 + static_cast<int64_t>(random() % 600),
                              .global_batch_tokens = 16,
                              .sequence_length = 8,
                              .exact = false};
    const auto reference = PlanMixture(sources, options);
    options.exact = true;
    const auto exact = PlanMixture(sources, options);
    if (!exact.ok()) continue;
    EXPECT_EQ(exact->num_instances, exact->target_instances);
    for (const MixtureEntry& entry : exact->entries) {
      EXPECT_LE(entry.num_instances, entry.max_instances);
      EXPECT_GE(entry.num_instances, 0);
    }
    if (reference->num_instances == reference->target_instances) {
      EXPECT_EQ(Instances(*exact), Instances(*reference)) << trial;
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(Mixture, RepeatsASourceOnlyIfAllowed) {
  std::vector<MixtureSource> sources = {{.label = "small", .file_tokens = {80}, .target_ratio = 1}};
  const MixtureOptions options = {
      .requested_tokens = 200, .global_batch_tokens = 8, .sequence_length = 8};
  const auto refused = PlanMixture(sources, options);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("source small: 200 of 200 tokens"));
  sources[0].max_repetition_ratio = 2.5;
  const MixturePlan plan = PlanOrDie(sources, options);
  EXPECT_EQ(Instances(plan), (Ints{10, 10, 5}));
  EXPECT_EQ(plan.entries[2].pass, 2);
  EXPECT_THAT(ExplainMixture(sources, options, plan), HasSubstr("total: 25 instances"));
}

TEST(Mixture, KeepsTheFractionOfASource) {
  const std::vector<MixtureSource> sources = {
      {.label = "a", .file_tokens = {800}, .target_ratio = 1, .max_source_fraction = 0.25}};
  EXPECT_THAT(PlanMixture(sources,
                          {.requested_tokens = 201, .global_batch_tokens = 8, .sequence_length = 8})
                  .status()
                  .message(),
              HasSubstr("it offers 200"));
}

TEST(Mixture, RefusesWhatCannotBe) {
  const MixtureSource good = {.label = "a", .file_tokens = {800}, .target_ratio = 1};
  const MixtureOptions options = {
      .requested_tokens = 64, .global_batch_tokens = 8, .sequence_length = 8};
  const auto message = [](std::vector<MixtureSource> sources, const MixtureOptions& with) {
    const auto plan = PlanMixture(sources, with);
    EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
    return plan.status().message();
  };
  MixtureSource half = good;
  half.target_ratio = 0.5;
  EXPECT_THAT(message({half}, options), HasSubstr("sum to 0.5"));
  MixtureSource negative = good;
  negative.target_ratio = -1;
  EXPECT_THAT(message({negative}, options), HasSubstr("target_ratio = -1"));
  MixtureSource nothing = good;
  nothing.file_tokens = {0};
  EXPECT_THAT(message({nothing}, options), HasSubstr("offers 0"));
  MixtureOptions uneven = options;
  uneven.global_batch_tokens = 12;
  EXPECT_THAT(message({good}, uneven), HasSubstr("multiple of 8"));
  EXPECT_THAT(message({}, options), HasSubstr("no source"));
  // Enough tokens, but in files that are each shorter than an instance.
  MixtureSource crumbs = good;
  crumbs.file_tokens = Ints(100, 7);
  EXPECT_THAT(message({crumbs}, options), HasSubstr("gives 0 instances, but 8 are needed"));
}

TEST(Mixture, CountsTrillionsOfTokens) {
  const std::vector<MixtureSource> sources = {
      {.label = "a", .file_tokens = Ints(1000, 9'000'000'000), .target_ratio = 0.7},
      {.label = "b", .file_tokens = Ints(100, 50'000'000'000), .target_ratio = 0.3}};
  const MixtureOptions options = {.requested_tokens = 10'000'000'000'000,
                                  .global_batch_tokens = 4'194'304,
                                  .sequence_length = 8192};
  const MixturePlan plan = PlanOrDie(sources, options);
  EXPECT_EQ(plan.num_instances, plan.target_instances);
  EXPECT_EQ(plan.target_instances, (10'000'000'000'000 + 4'194'303) / 4'194'304 * 512);
}

TEST(Mixture, RoundsToTheTargetSequenceLength) {
  const std::vector<MixtureSource> sources = {
      {.label = "a", .file_tokens = {100, 100}, .target_ratio = 1}};
  const MixturePlan plan = PlanOrDie(sources, {.requested_tokens = 96,
                                               .global_batch_tokens = 32,
                                               .sequence_length = 8,
                                               .max_target_sequence_length = 32});
  EXPECT_EQ(plan.num_instances, 12);
  for (const MixtureEntry& entry : plan.entries) EXPECT_EQ(entry.num_instances % 4, 0);
}

}  // namespace
}  // namespace ulmus::data
