// Failures that other training stacks reported in public, as scenarios over whole recipes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/hash.h"
#include "data/config.h"
#include "data/token_files_testing.h"

namespace ulmus::data {
namespace {

using ::testing::HasSubstr;

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
        const int64_t asked = end == std::string("wrap") ? count : count + 3;
        const auto straight = Straight(config_, asked);
        ASSERT_TRUE(straight.ok()) << straight.status().message();
        ASSERT_EQ(static_cast<int64_t>(straight->size()), count);
        for (const int64_t at : {int64_t{0}, int64_t{1}, epoch - 1, epoch, 2 * epoch, count}) {
          if (at > count) continue;
          const auto stopped = Stopped(config_, at, asked);  // after the last batch: nothing
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

// What a host reads of the data, up to `count` steps.
struct HostStep {
  std::vector<int64_t> rows, ids, global_ids;
  int64_t valid = 0;
};
Result<std::vector<HostStep>> ReadAsHost(const DataConfig& config, int64_t host, int64_t num_hosts,
                                         int64_t count) {
  Data data = TRY(OpenData(config));
  data.loader.layout.num_hosts = num_hosts;
  data.loader.host = host;
  const auto loader = TRY(Loader::Create(*data.source, *data.order, data.loader));
  std::vector<HostStep> steps;
  while (static_cast<int64_t>(steps.size()) < count) {
    const Batch* batch = TRY(loader->Next());
    if (batch == nullptr) break;
    HostStep& step = steps.emplace_back();
    step.global_ids = batch->global_ids;
    step.valid = batch->num_valid;
    step.rows = batch->rows;
    for (size_t r = 0; r < batch->rows.size(); ++r)
      step.ids.push_back(batch->id(static_cast<int64_t>(r)));
  }
  return steps;
}

// B09: three files of unequal length and two hosts, read past the end with each policy and with
// none named. No host runs out before the other, and no step is without a target.
TEST_F(Cases, HostsEndTogetherWhateverTheirFilesHold) {
  const std::map<std::string, int64_t> lengths = {{"a", 5 * 16 + 3}, {"b", 2 * 16 + 1}, {"c", 175}};
  for (const auto& [name, length] : lengths) {
    std::vector<int64_t> tokens;
    for (int64_t t = 0; t < length; ++t) tokens.push_back(10 + t);
    WriteTokens<uint32_t>(dir_.path() / name, tokens);
  }
  config_.paths = {"a", "b", "c"};  // 5, 2 and 10 instances: 17, in batches of 4
  constexpr int64_t kAsked = 11;    // beyond two epochs
  for (const char* order : {"olmo_core", "maxtext", "grain", "sequential"}) {
    config_.order = order;
    for (const char* end : {"", "stop", "wrap", "pad"}) {
      SCOPED_TRACE(fmt::format("{} {}", order, end));
      config_.end = *end == '\0' ? DataConfig().end : end;
      ::testing::internal::CaptureStderr();
      const auto first = ReadAsHost(config_, 0, 2, kAsked);
      EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                  HasSubstr(fmt::format("data.end = \"{}\"", config_.end)));
      const auto second = ReadAsHost(config_, 1, 2, kAsked);
      ASSERT_TRUE(first.ok() && second.ok());
      const size_t steps = config_.end == "wrap" ? kAsked : config_.end == "pad" ? 5 : 4;
      ASSERT_EQ(first->size(), steps);
      ASSERT_EQ(second->size(), steps);
      std::map<int64_t, int64_t> used;
      for (size_t i = 0; i < steps; ++i) {
        const HostStep &a = (*first)[i], &b = (*second)[i];
        EXPECT_EQ(a.global_ids, b.global_ids);
        std::vector<int64_t> together(4, -2);
        for (const HostStep* host : {&a, &b}) {
          for (size_t r = 0; r < host->rows.size(); ++r)
            together[static_cast<size_t>(host->rows[r])] = host->ids[r];
        }
        EXPECT_EQ(together, a.global_ids);
        const auto real = std::ranges::count_if(together, [](int64_t id) { return id >= 0; });
        EXPECT_EQ(a.valid + b.valid, real * 15);
        EXPECT_GT(a.valid + b.valid, 0) << "step " << i;
        for (const int64_t id : together) ++used[id];
      }
      if (config_.end == "wrap") continue;
      for (int64_t id = 0; id < 17; ++id) EXPECT_LE(used[id], 1) << id;
      used.erase(kNoInstance);
      EXPECT_EQ(std::ranges::count_if(used, [](const auto& use) { return use.second == 1; }),
                config_.end == "pad" ? 17 : 16);
    }
  }
}

// B10, B11: less data than hosts or than a batch, or none, is an error with the numbers.
TEST_F(Cases, TooLittleDataIsRefusedWithTheNumbers) {
  for (const char* order : {"olmo_core", "maxtext", "grain", "sequential"}) {
    config_.order = order;
    for (const int64_t instances : {1, 5}) {
      SCOPED_TRACE(fmt::format("{} {}", order, instances));
      std::vector<int64_t> tokens(static_cast<size_t>(16 * instances), 10);
      WriteTokens<uint32_t>(dir_.path() / "a", tokens);
      config_.paths = {"a"};
      config_.global_batch = 8;
      const Status none = OpenData(config_).status();
      EXPECT_EQ(none.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(none.message(),
                  HasSubstr(fmt::format("zero batches: {} instances give floor({} / 8) = 0",
                                        instances, instances)));
      config_.global_batch = 1;
      const Status hosts = ReadAsHost(config_, 0, 4, 1).status();
      EXPECT_EQ(hosts.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(hosts.message(), HasSubstr("1 / (1 * 4 * 1)"));
    }
    WriteTokens<uint32_t>(dir_.path() / "a", {});
    EXPECT_THAT(OpenData(config_).status().message(), HasSubstr("the dataset has no instance"));
  }
}

// B14: files that end at, one after and one before the end of a batch of k instances.
TEST_F(Cases, TrailingTokensAreDroppedAndCounted) {
  const int64_t batch = 4 * 16;
  config_.paths.clear();
  int64_t next = 10;
  std::vector<std::vector<int64_t>> expected;  // instances
  for (const int64_t length : {2 * batch, 2 * batch + 1, 2 * batch + batch - 1}) {
    std::vector<int64_t> tokens;
    for (int64_t t = 0; t < length; ++t) tokens.push_back(next++);
    for (int64_t first = 0; first + 16 <= length; first += 16)
      expected.emplace_back(tokens.begin() + first, tokens.begin() + first + 16);
    config_.paths.push_back(std::to_string(length));
    WriteTokens<uint32_t>(dir_.path() / config_.paths.back(), tokens);
  }
  config_.order = "sequential";
  config_.end = "pad";
  ::testing::internal::CaptureStderr();
  auto data = OpenData(config_);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("27 instances of 16 tokens; 16 tokens after the last full one"));
  ASSERT_TRUE(data.ok()) << data.status().message();
  const auto loader = Loader::Create(*data->source, *data->order, data->loader);
  ASSERT_TRUE(loader.ok()) << loader.status().message();
  size_t read = 0;
  while (true) {
    const auto got = (*loader)->Next();
    ASSERT_TRUE(got.ok()) << got.status().message();
    if (*got == nullptr) break;
    const auto tokens = (*got)->tokens.values<int32_t>();
    for (size_t r = 0; r < 4 && read < expected.size(); ++r, ++read) {
      const auto row = tokens.subspan(r * 16, 16);
      EXPECT_TRUE(std::ranges::equal(row, expected[read])) << read;
    }
  }
  EXPECT_EQ(read, 27u);
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
