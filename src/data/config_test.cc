#include "data/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"
#include "data/index.h"
#include "data/manifest.h"
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

  std::string OpenError(StatusCode code = StatusCode::kInvalidArgument) {
    const Result<Data> data = OpenData(config_);
    EXPECT_EQ(data.status().code(), code);
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

TEST_F(DataConfigTest, OpensAnIndexFromItsOwnFolder) {
  Index index{.sequence_length = 2, .tokenizer = "t"};
  index.files = {{.path = "b.npy", .label = "x", .n_tokens = 7}};
  ASSERT_TRUE(CompleteIndex(index).ok());
  ASSERT_TRUE(WriteIndex(dir_.path() / "index.json", index).ok());
  config_.paths.clear();
  config_.base_dir.clear();
  config_.index = dir_.path() / "index.json";
  config_.global_batch = 3;
  const auto data = OpenData(config_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->source->fingerprint(), index.fingerprint);
}

TEST_F(DataConfigTest, RefusesTwoSourcesOfOneLabel) {
  config_.paths.clear();
  config_.sources = {{.label = "a", .paths = {"a.npy"}, .target_ratio = 0.5},
                     {.label = "a", .paths = {"b.npy"}, .target_ratio = 0.5}};
  config_.mixture_tokens = 8;
  EXPECT_THAT(OpenError(), HasSubstr("label `a` twice"));
}

TEST_F(DataConfigTest, RefusesToVerifyWithoutAManifest) {
  config_.verify_files = true;
  EXPECT_THAT(OpenError(), HasSubstr("data.verify_files = true: no manifest"));
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
  config_.pad_id = 100278;
  EXPECT_THAT(OpenError(), HasSubstr("data.pad_id = 100278: must be below"));
  config_.pad_id = 2;
  config_.max_target_sequence_length = 3;
  EXPECT_THAT(OpenError(), HasSubstr("max_target_sequence_length = 3"));
}

// The state of a run that stops before `step`; it goes through its text, as through a checkpoint.
LoaderState Saved(const DataConfig& config, int64_t step) {
  const auto save = [&]() -> Result<LoaderState> {
    const Data data = TRY(OpenData(config));
    const LoaderState state = TRY(StateBefore(step, data, 0, {}));
    return ParseLoaderState(PrintLoaderState(state));
  };
  Result<LoaderState> state = save();
  EXPECT_TRUE(state.ok()) << state.status().message();
  return state.ok() ? std::move(*state) : LoaderState();
}

TEST_F(DataConfigTest, GoesOnWhereACheckpointWasTaken) {
  config_.global_batch = 2;
  const LoaderState state = Saved(config_, 3);
  EXPECT_EQ(state.files.size(), 2u);
  const auto data = ResumeData(config_, state);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->loader.first_step, 3);
  const auto loader = Loader::Create(*data->source, *data->order, data->loader);
  ASSERT_TRUE(loader.ok()) << loader.status().message();
  EXPECT_EQ((*(*loader)->Next())->step, 3);
}

TEST_F(DataConfigTest, NamesAFileReplacedBetweenRuns) {
  const LoaderState state = Saved(config_, 1);
  WriteTokens<uint32_t>(dir_.path() / "b.npy", Counting(101, 7));  // as long: the same fingerprint
  const Status status = ResumeData(config_, state).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("b.npy: its content is not what the run began with"));
  config_.accept_fingerprint = state.dataset_fingerprint;
  EXPECT_TRUE(ResumeData(config_, state).ok());
}

TEST_F(DataConfigTest, NamesALabelMaskReplacedBetweenRuns) {
  config_.paths = {"b.npy"};
  config_.label_masks = {"mask"};
  config_.global_batch = 1;
  WriteTokens<uint8_t>(dir_.path() / "mask", {1, 1, 1, 1, 1, 1, 1});
  const LoaderState state = Saved(config_, 1);
  WriteTokens<uint8_t>(dir_.path() / "mask", {1, 1, 0, 1, 1, 1, 1});
  EXPECT_THAT(ResumeData(config_, state).status().message(), HasSubstr("mask: its content"));
}

// B16: a recipe that gives another width than the files have does not come as far as a batch.
TEST_F(DataConfigTest, RefusesAnotherWidthAndNamesTheLikelyOne) {
  std::vector<int64_t> text;
  for (int64_t i = 0; i < 600; ++i) text.push_back(i * 7919 % 30'011 + 1);
  WriteTokens<uint16_t>(dir_.path() / "c.npy", text);
  config_.paths = {"a.npy", "c.npy"};
  EXPECT_THAT(OpenError(StatusCode::kDataLoss), HasSubstr("c.npy: read as u32"));
  EXPECT_THAT(OpenError(StatusCode::kDataLoss), HasSubstr("looks like u16: set dtype = \"u16\""));
}

// B18: with a manifest, files that were cut or changed are named.
TEST_F(DataConfigTest, ChecksFilesAgainstTheirManifest) {
  const std::string bytes = *ReadFile(dir_.path() / "a.npy");
  const auto tokens = static_cast<int64_t>(bytes.size()) / 4;
  Manifest manifest;
  manifest.vocab_size = 100278;
  manifest.eos_id = 100257;
  manifest.tokens = tokens;
  manifest.documents = 1;
  manifest.files.resize(1);
  manifest.files[0].part = {"a.npy", tokens * 4, Sha256Hex(bytes)};
  manifest.files[0].tokens = tokens;
  manifest.files[0].documents = 1;
  ASSERT_TRUE(WriteManifest(dir_.path() / "t.manifest.json", manifest).ok());
  config_.paths = {"t.manifest.json"};
  const auto data = OpenData(config_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->source->num_instances(), 5);
  config_.dtype = "u16";
  EXPECT_THAT(OpenError(), HasSubstr("data.dtype = \"u16\""));
  config_.dtype = "u32";
  std::string flipped = bytes;
  flipped[5] ^= 1;
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "a.npy", flipped).ok());
  EXPECT_TRUE(OpenData(config_).ok());  // a manifest of sizes and SHA-256 only
  manifest.files[0].part.sample_hash = Xxh3(bytes);
  ASSERT_TRUE(WriteManifest(dir_.path() / "t.manifest.json", manifest).ok());
  EXPECT_THAT(OpenError(StatusCode::kDataLoss), HasSubstr("a.npy: sample hash"));
  config_.verify_files = true;
  EXPECT_THAT(OpenError(StatusCode::kDataLoss), HasSubstr("a.npy: SHA-256"));
  ASSERT_TRUE(WriteFileAtomic(dir_.path() / "a.npy", bytes.substr(0, bytes.size() - 4)).ok());
  EXPECT_THAT(OpenError(StatusCode::kDataLoss), HasSubstr("a.npy: "));
  EXPECT_THAT(OpenError(StatusCode::kDataLoss), HasSubstr("t.manifest.json says"));
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
