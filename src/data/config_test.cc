#include "data/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<DataConfig> Parse(const std::string& text) {
  Schema schema;
  DataSchema().AddTo(schema);
  const Recipe recipe = TRY(Recipe::Resolve(schema, {.file = {.name = "r.toml", .text = text}}));
  return DataSchema().Read(recipe);
}

// Two files of 10 and 7 tokens.
class DataConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteTokens<uint32_t>(dir_.path() / "a.npy", Counting(0, 10));
    WriteTokens<uint32_t>(dir_.path() / "b.npy", Counting(100, 7));
    config_.paths = {"a.npy", "b.npy"};
    config_.base_dir = dir_.path();
    config_.sequence_length = 2;
    config_.global_batch = 4;
  }

  std::string OpenError() {
    const Result<Data> data = OpenData(config_);
    EXPECT_EQ(data.status().code(), StatusCode::kInvalidArgument);
    return data.status().message();
  }

  TempDir dir_;
  DataConfig config_;
};

TEST_F(DataConfigTest, OpensWhatTheRecipeSays) {
  config_.order = "sequential";
  const auto data = OpenData(config_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->source->num_instances(), 5 + 3);
  const auto loader = Loader::Create(*data->source, *data->order, data->loader);
  ASSERT_TRUE(loader.ok()) << loader.status().message();
  const auto batch = (*loader)->Next();
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT((*batch)->tokens.values<int32_t>(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(DataConfigTest, OpensAMixList) {
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "mix.txt", "x,b.npy\ny,a.npy\n").ok());
  config_.paths.clear();
  config_.mix_list = dir_.path() / "mix.txt";
  const auto data = OpenData(config_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->source->Describe(0)->source, "x");
}

TEST_F(DataConfigTest, OpensAMixture) {
  config_.paths.clear();
  config_.sources = {{.label = "a", .paths = {"a.npy"}, .target_ratio = 0.5},
                     {.label = "b", .paths = {"b.npy"}, .target_ratio = 0.5}};
  config_.mixture_tokens = 8;
  const auto data = OpenData(config_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->source->num_instances(), 4);
}

TEST_F(DataConfigTest, AutoIsOlmoCoreWhereItCanCount) {
  const auto data = OpenData(config_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->order->config().kind, OrderKind::kOlmoCore);
}

// B10, B11: said at once, with the numbers.
TEST_F(DataConfigTest, NamesTheNumbersOfTooLittleData) {
  config_.global_batch = 9;
  EXPECT_THAT(OpenError(),
              HasSubstr("data.global_batch = 9: zero batches: 8 instances give floor(8 / 9) = 0"));
  config_.sequence_length = 11;
  EXPECT_THAT(OpenError(), HasSubstr("the dataset has no instance"));
  WriteTokens<uint32_t>(dir_.path() / "empty.npy", {});
  config_.paths = {"empty.npy"};
  config_.sequence_length = 2;
  EXPECT_THAT(OpenError(), HasSubstr("no instance"));
}

TEST_F(DataConfigTest, RefusesKeysThatDoNotFit) {
  config_.index = "index.json";
  EXPECT_THAT(OpenError(), HasSubstr("exactly one way"));
  config_.index.clear();
  config_.label_masks = {"m"};
  EXPECT_THAT(OpenError(), HasSubstr("data.label_masks has 1 files, data.paths has 2"));
  config_.label_masks.clear();
  config_.mixture_tokens = 5;
  EXPECT_THAT(OpenError(), HasSubstr("data.mixture_tokens = 5 with 0"));
  config_.mixture_tokens = 0;
  config_.eos_id = 100278;
  EXPECT_THAT(OpenError(), HasSubstr("data.eos_id = 100278: must be below data.vocab_size 100278"));
  config_.eos_id = 1;
  config_.max_target_sequence_length = 3;
  EXPECT_THAT(OpenError(), HasSubstr("max_target_sequence_length = 3"));
}

TEST(DataSchema, ReadsATable) {
  const auto config = Parse(
      "[data]\nsequence_length = 64\norder = \"grain\"\nngram_filter = \"maxtext\"\n"
      "[[data.sources]]\nlabel = \"web\"\ntarget_ratio = 1.0\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->sequence_length, 64);
  EXPECT_EQ(config->sources[0].label, "web");
  EXPECT_EQ(BatchOptionsOf(*config)->filter.variant, NgramVariant::kMaxText);
}

TEST(DataSchema, RefusesWithTheNearestName) {
  EXPECT_THAT(Parse("[data]\nsequence_lenght = 64\n").status().message(),
              HasSubstr("data.sequence_length"));
  EXPECT_THAT(Parse("[data]\norder = \"olmo\"\n").status().message(), HasSubstr("olmo_core"));
  EXPECT_THAT(Parse("[data]\nglobal_batch = 0\n").status().message(), HasSubstr("must be >= 1"));
}

}  // namespace
}  // namespace ulmus::data
