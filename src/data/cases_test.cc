// Failures that other training stacks reported in public, as scenarios over whole recipes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "data/config.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

constexpr int64_t kEos = 9;

// What a step trained on.
struct Step {
  std::vector<int64_t> ids;
  uint64_t content = 0;
  friend bool operator==(const Step&, const Step&) = default;
};

uint64_t ContentOf(const Batch& batch) {
  Xxh3Stream hash;
  for (const HostTensor* tensor :
       {&batch.tokens, &batch.loss_mask, &batch.segment_ids, &batch.positions})
    hash.Update(tensor->bytes());
  return hash.digest();
}

// Up to `count` steps; fewer where the data ends.
Result<std::vector<Step>> Read(Data& data, int64_t count, int64_t num_microbatches = 1) {
  data.loader.layout.num_microbatches = num_microbatches;
  auto loader = TRY(Loader::Create(*data.source, *data.order, data.loader));
  std::vector<Step> steps;
  while (static_cast<int64_t>(steps.size()) < count) {
    const Batch* batch = TRY(loader->Next());
    if (batch == nullptr) break;
    // A batch is a set of rows, whichever microbatch they are in; without hosts they are in order.
    steps.push_back({batch->global_ids, ContentOf(*batch)});
  }
  return steps;
}

Result<std::vector<Step>> Straight(const DataConfig& config, int64_t count) {
  Data data = TRY(OpenData(config));
  return Read(data, count);
}

// Stops before step `at`, goes on as a new process would, with another accumulation.
Result<std::vector<Step>> Stopped(const DataConfig& config, int64_t at, int64_t count) {
  std::string saved;
  std::vector<Step> steps;
  {
    Data data = TRY(OpenData(config));
    steps = TRY(Read(data, at, 4));
    saved = PrintLoaderState(TRY(StateBefore(at, data, 0, {})));
  }
  const LoaderState state = TRY(ParseLoaderState(saved));
  Data data = TRY(ResumeData(config, state));
  const std::vector<Step> rest = TRY(Read(data, count - at, 2));
  steps.insert(steps.end(), rest.begin(), rest.end());
  return steps;
}

// Two files of documents of mixed length, 403 tokens.
class Cases : public ::testing::Test {
 protected:
  Cases() {
    std::vector<int64_t> tokens;
    for (int64_t i = 0; i < 403; ++i) tokens.push_back(i * i % 13 == 1 ? kEos : 10 + i);
    const std::span all(tokens);
    WriteTokens<uint32_t>(dir_.path() / "a", {all.begin(), all.begin() + 170});
    WriteTokens<uint32_t>(dir_.path() / "b", {all.begin() + 170, all.end()});
    config_.base_dir = dir_.path();
    config_.paths = {"a", "b"};
    config_.eos_id = kEos;
    config_.pad_id = 8;
    config_.vocab_size = 1000;
    config_.sequence_length = 16;
    config_.global_batch = 4;
    config_.document_mask = true;
  }
  void UseDataset(const std::string& name) {
    config_.sources.clear();
    config_.mixture_tokens = 0;
    config_.paths = {"a", "b"};
    config_.dataset = name == "mixture" ? "fixed_length" : name;
    if (name != "mixture") return;
    config_.paths.clear();
    config_.sources = {{.label = "a", .paths = {"a"}, .target_ratio = 0.5},
                       {.label = "b", .paths = {"b"}, .target_ratio = 0.5}};
    config_.mixture_tokens = 256;
  }

  TempDir dir_;
  DataConfig config_;
};

// B01, B04, B05, B06, B07 and their kind: any dataset, any order, stopped before the first batch,
// within each of three epochs, at their edges and after the last batch.
TEST_F(Cases, ResumedRunsReadWhatStraightOnesDo) {
  for (const char* dataset : {"fixed_length", "packed", "padded", "mixture"}) {
    UseDataset(dataset);
    for (const char* order : {"olmo_core", "maxtext", "grain", "sequential"}) {
      config_.order = order;
      for (const char* end : {"stop", "wrap", "pad"}) {
        config_.end = end;
        SCOPED_TRACE(fmt::format("{} {} {}", dataset, order, end));
        const auto opened = OpenData(config_);
        ASSERT_TRUE(opened.ok()) << opened.status().message();
        const int64_t epoch = opened->source->num_instances() / 4 + 1;
        const int64_t count = opened->order->num_steps().value_or(5 * epoch / 2);
        const auto straight = Straight(config_, count);
        ASSERT_TRUE(straight.ok()) << straight.status().message();
        ASSERT_EQ(static_cast<int64_t>(straight->size()), count);
        for (const int64_t at : {int64_t{0}, int64_t{1}, epoch - 1, epoch, 2 * epoch, count}) {
          if (at > count) continue;
          const auto stopped = Stopped(config_, at, count);
          ASSERT_TRUE(stopped.ok()) << stopped.status().message();
          ASSERT_EQ(*stopped, *straight) << "stopped before step " << at;
        }
      }
    }
  }
}

// B01: each epoch has an order of its own.
TEST_F(Cases, EpochsHaveDifferentOrders) {
  config_.end = "wrap";
  config_.global_batch = 8;
  for (const char* order : {"olmo_core", "maxtext", "grain"}) {
    config_.order = order;
    const auto steps = Straight(config_, 9);
    ASSERT_TRUE(steps.ok()) << steps.status().message();
    std::set<std::vector<int64_t>> starts;
    for (const size_t first : {0, 3, 6}) starts.insert((*steps)[first].ids);
    EXPECT_EQ(starts.size(), 3u) << order;
  }
}

// B20: a token counts once, whatever the number of its document.
TEST_F(Cases, TokensOfAllDocumentsWeighTheSame) {
  WriteTokens<uint32_t>(dir_.path() / "a", {10, 11, 12, kEos, 20, 21, kEos, 30, 31, 32, 33, kEos});
  config_.paths = {"a"};
  config_.dataset = "packed";
  config_.global_batch = 1;
  auto data = OpenData(config_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  const auto loader = Loader::Create(*data->source, *data->order, data->loader);
  ASSERT_TRUE(loader.ok()) << loader.status().message();
  const auto batch = (*loader)->Next();
  ASSERT_TRUE(batch.ok() && *batch != nullptr);
  // Longest first; the last token before the padding has no target.
  EXPECT_THAT((*batch)->segment_ids.values<int32_t>(),
              ::testing::ElementsAre(1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 0, 0, 0, 0));
  EXPECT_THAT((*batch)->loss_mask.values<uint8_t>(),
              ::testing::ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0));
  EXPECT_EQ((*batch)->num_valid, 11);
  EXPECT_EQ((*batch)->divisor, 11);
}

// B24: documents of one token at the start, at the end and at both, in one batch.
TEST_F(Cases, DocumentsOfOneTokenHaveASegmentAndAPosition) {
  const std::vector<std::vector<int64_t>> rows = {{kEos, 1, 2, 3, 4, 5, 6, kEos},
                                                  {1, 2, 3, 4, 5, 6, kEos, kEos},
                                                  {kEos, 1, 2, 3, 4, 5, kEos, kEos},
                                                  {kEos, kEos, kEos, kEos, kEos, kEos, kEos, 7}};
  std::vector<int64_t> tokens;
  for (const auto& row : rows) tokens.insert(tokens.end(), row.begin(), row.end());
  WriteTokens<uint32_t>(dir_.path() / "a", tokens);
  config_.paths = {"a"};
  config_.sequence_length = 8;
  config_.order = "sequential";
  auto data = OpenData(config_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  const auto loader = Loader::Create(*data->source, *data->order, data->loader);
  ASSERT_TRUE(loader.ok()) << loader.status().message();
  const auto batch = (*loader)->Next();
  ASSERT_TRUE(batch.ok() && *batch != nullptr);
  const auto segments = (*batch)->segment_ids.values<int32_t>();
  const auto positions = (*batch)->positions.values<int32_t>();
  for (size_t r = 0; r < rows.size(); ++r) {
    int32_t segment = 1;
    int32_t position = 0;
    for (size_t t = 0; t < 8; ++t) {
      EXPECT_EQ(segments[r * 8 + t], segment) << r << " " << t;
      EXPECT_EQ(positions[r * 8 + t], position) << r << " " << t;
      ++position;
      if (rows[r][t] == kEos) {
        ++segment;
        position = 0;
      }
    }
  }
}

}  // namespace
}  // namespace ulmus::data
