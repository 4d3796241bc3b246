// Appending to a cache against the forward pass over the whole sequence, both in double.
#include "nn/olmo3/decode.h"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/interpret.h"
#include "graph/ops.h"
#include "nn/olmo3/model.h"
#include "nn/olmo3/sharding.h"
#include "nn/olmo3/testing/golden.h"

namespace ulmus::nn::olmo3 {
namespace {

using graph::Graph;
using graph::RefTensor;

// Window 4, groups of two query heads per key head; a single layer after the group.
Config SmallConfig() {
  Config c = LoadGolden().config;
  c.vocab_size = 31;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.head_dim = 8;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.num_layers = 5;
  c.eos_token_id = c.pad_token_id = {};
  return c;
}

// Logits [B,T,V] of the forward pass.
RefTensor FullLogits(const Config& config, const HostTensor& tokens) {
  Graph g("full", {}, DefaultRules(config, {}));
  const Weights weights = BindWeights(config, DeclareParameters(g, config));
  const graph::Value ids = g.Parameter("tokens", tokens.type());
  const ForwardOptions forward{.dtype = DType::kF32};
  const Inputs inputs{.tokens = ids, .positions = Iota(g, tokens.type(), 1)};
  g.Result("logits", Logits(config, weights, Hidden(config, weights, inputs, forward), forward));
  std::vector<RefTensor> arguments = FormulaWeights(config);
  arguments.push_back(RefTensor::FromHost(tokens));
  return Interpret(g, arguments, {.round = false})[0];
}

// FormulaWeights one by one: unstacked, without padding rows.
std::vector<RefTensor> SingleWeights(const Config& config) {
  const std::vector<RefTensor> stacked = FormulaWeights(config);
  std::vector<RefTensor> singles;
  for (const HfTensor& tensor : HfTensors(config)) {
    const auto size = static_cast<size_t>(tensor.shape.num_elements());
    const auto first = static_cast<size_t>(std::max<int64_t>(tensor.group, 0)) * size;
    const auto& data = stacked[static_cast<size_t>(tensor.parameter)].data;
    singles.push_back({{DType::kF32, tensor.shape},
                       {data.begin() + static_cast<std::ptrdiff_t>(first),
                        data.begin() + static_cast<std::ptrdiff_t>(first + size)}});
  }
  return singles;
}

// Sequences that grow in calls of one program per chunk size.
class Sequences {
 public:
  Sequences(Config config, int64_t batch, int64_t max_length, int64_t max_chunk)
      : config_(std::move(config)),
        batch_(batch),
        max_length_(max_length),
        max_chunk_(max_chunk),
        weights_(SingleWeights(config_)),
        lengths_(static_cast<size_t>(batch), 0) {
    // Not zeros: what the cache held before must not matter.
    for (const DecodeTensor& tensor :
         DecodeCache(config_, DType::kF32, batch, max_length, max_chunk)) {
      cache_.push_back(RefTensor::Zeros(tensor.type));
      for (double& x : cache_.back().data) x = 77;
    }
  }

  // Appends counts[b] tokens to row b, taken from `tokens` [B,T] at its length. Returns logits
  // [B,C,V].
  RefTensor Append(const HostTensor& tokens, int64_t chunk, const std::vector<int64_t>& counts) {
    const auto graph = DecodeGraph(config_, {.batch = batch_,
                                             .chunk = chunk,
                                             .max_chunk = max_chunk_,
                                             .max_length = max_length_,
                                             .dtype = DType::kF32,
                                             .all_logits = true,
                                             .mesh = {}});
    std::vector<RefTensor> arguments = weights_;
    arguments.insert(arguments.end(), cache_.begin(), cache_.end());
    arguments.push_back(RefTensor::Zeros({DType::kI32, {batch_, chunk}}));
    for (int64_t b = 0; b < batch_; ++b) {
      for (int64_t i = 0; i < counts[static_cast<size_t>(b)]; ++i) {
        arguments.back().data[static_cast<size_t>(b * chunk + i)] =
            tokens.Get(b * tokens.shape().dim(1) + lengths_[static_cast<size_t>(b)] + i);
      }
    }
    for (const auto& numbers : {lengths_, counts}) {
      arguments.push_back(RefTensor::Zeros({DType::kI32, {batch_}}));
      for (size_t b = 0; b < numbers.size(); ++b)
        arguments.back().data[b] = static_cast<double>(numbers[b]);
    }
    std::vector<RefTensor> results = Interpret(*graph, arguments, {.round = false});
    for (size_t i = 0; i < cache_.size(); ++i) cache_[i] = results[i + 1];
    for (size_t b = 0; b < counts.size(); ++b) lengths_[b] += counts[b];
    return results[0];
  }

  int64_t length(int64_t b) const { return lengths_[static_cast<size_t>(b)]; }
  const std::vector<RefTensor>& cache() const { return cache_; }

 private:
  Config config_;
  int64_t batch_, max_length_, max_chunk_;
  std::vector<RefTensor> weights_, cache_;
  std::vector<int64_t> lengths_;
};

// What Append returned for the tokens of row b equals the full pass at their positions.
void ExpectSame(const RefTensor& appended, const RefTensor& full, int64_t b, int64_t first,
                int64_t count) {
  const int64_t V = full.type.shape.dim(2), T = full.type.shape.dim(1),
                C = appended.type.shape.dim(1);
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t v = 0; v < V; ++v) {
      ASSERT_NEAR(appended.data[static_cast<size_t>((b * C + i) * V + v)],
                  full.data[static_cast<size_t>((b * T + first + i) * V + v)], 1e-9)
          << "row " << b << " position " << first + i << " token " << v;
    }
  }
}

struct Variant {
  const char* name;
  Config (*make)();
};

Config WithYarn(YarnLayers layers) {
  Config c = SmallConfig();
  c.yarn = Yarn{.factor = 4, .original_context = 64};
  c.yarn_layers = layers;
  return c;
}

const Variant kVariants[] = {
    {"GroupedQueries", SmallConfig},
    {"OneKeyHeadPerQueryHead",
     [] {
       Config c = SmallConfig();
       c.num_kv_heads = c.num_heads;
       return c;
     }},
    {"YarnOnFullLayers", [] { return WithYarn(YarnLayers::kFullAttention); }},
    {"YarnOnAllLayers", [] { return WithYarn(YarnLayers::kAll); }},
    {"WindowOfOneToken",
     [] {
       Config c = SmallConfig();
       c.sliding_window = 1;
       return c;
     }},
    {"WindowBeyondTheSequence",
     [] {
       Config c = SmallConfig();
       c.sliding_window = 64;
       return c;
     }},
    {"TiedHeadAndPaddedVocabulary",
     [] {
       Config c = SmallConfig();
       c.tie_word_embeddings = true;
       c.vocab_multiple = 8;
       return c;
     }},
};

class Decode : public testing::TestWithParam<Variant> {};

TEST_P(Decode, TokenByTokenEqualsTheFullPass) {
  const Config config = GetParam().make();
  constexpr int64_t kLength = 15;  // the ring of 4 is passed three times
  const HostTensor tokens = FormulaTokens(config, 2, kLength);
  const RefTensor full = FullLogits(config, tokens);
  Sequences sequences(config, 2, kLength, 1);
  for (int64_t t = 0; t < kLength; ++t) {
    const RefTensor logits = sequences.Append(tokens, 1, {1, 1});
    for (int64_t b = 0; b < 2; ++b) ExpectSame(logits, full, b, t, 1);
  }
}

// Prompts of different length in chunks longer and shorter than the window, then single tokens; a
// row may rest while others go on.
TEST_P(Decode, ChunksOfDifferentLengthEqualTheFullPass) {
  const Config config = GetParam().make();
  const HostTensor tokens = FormulaTokens(config, 3, 20);
  const RefTensor full = FullLogits(config, tokens);
  const struct {
    int64_t chunk;
    std::vector<int64_t> counts;
  } calls[] = {{6, {6, 1, 4}}, {6, {5, 0, 6}}, {6, {0, 2, 3}}, {1, {1, 1, 0}}, {1, {1, 1, 1}},
               {3, {3, 3, 1}}, {1, {0, 1, 1}}, {6, {2, 6, 2}}, {1, {1, 1, 1}}};
  Sequences sequences(config, 3, 20, 6);
  for (const auto& call : calls) {
    std::vector<int64_t> before;
    for (int64_t b = 0; b < 3; ++b) before.push_back(sequences.length(b));
    const RefTensor logits = sequences.Append(tokens, call.chunk, call.counts);
    for (size_t b = 0; b < 3; ++b)
      ExpectSame(logits, full, static_cast<int64_t>(b), before[b], call.counts[b]);
  }
}

// One layer with a window: row j + 1 has another token at position j than row 0, so its logits
// differ from those of row 0 exactly where a query reads key j.
TEST(DecodeWindow, AQueryReadsItselfAndTheEntriesOfTheRing) {
  constexpr int64_t kLength = 12;
  for (const int64_t window : {1, 3, 4, 5, 13}) {
    Config config = SmallConfig();
    config.num_layers = 1;
    config.layer_pattern = {LayerType::kSliding};
    config.sliding_window = window;
    HostTensor tokens = FormulaTokens(config, kLength + 1, kLength);
    for (int64_t row = 0; row <= kLength; ++row) {
      for (int64_t t = 0; t < kLength; ++t) {
        const auto id = static_cast<int64_t>(tokens.Get(t));
        tokens.Set(row * kLength + t, static_cast<double>(row == t + 1 ? (id + 7) % 31 : id));
      }
    }
    // Single tokens; chunks shorter and longer than most windows, then single tokens.
    for (const std::vector<int64_t>& chunks :
         {std::vector<int64_t>(kLength, 1), {2, 1, 2, 3, 1, 3}, {7, 1, 1, 3}}) {
      Sequences sequences(config, kLength + 1, kLength, 7);
      for (int64_t first = 0; const int64_t chunk : chunks) {
        const std::vector<int64_t> counts(kLength + 1, chunk);
        const RefTensor logits = sequences.Append(tokens, chunk, counts);
        const int64_t V = config.vocab_size;
        for (int64_t i = first; i < first + chunk; ++i) {
          for (int64_t j = 0; j < kLength; ++j) {
            double change = 0;
            for (int64_t v = 0; v < V; ++v) {
              const auto at = [&](int64_t row) {
                return logits.data[static_cast<size_t>((row * chunk + i - first) * V + v)];
              };
              change = std::max(change, std::fabs(at(j + 1) - at(0)));
            }
            EXPECT_EQ(change > 0, j <= i && i - j < window)
                << "query " << i << ", key " << j << ", window " << window << ", chunk " << chunk;
          }
        }
        first += chunk;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, Decode, testing::ValuesIn(kVariants),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(DecodeCache, SlidingLayersHoldAWindowAndFullLayersTheSequence) {
  const Config config = SmallConfig();  // sliding x3, full, sliding
  const auto cache = DecodeCache(config, DType::kBF16, 2, 1000, 8);
  ASSERT_EQ(cache.size(), 10u);
  EXPECT_EQ(cache[0].name, "layers.0.k_cache");
  EXPECT_EQ(cache[0].type, (TensorType{DType::kBF16, {2, 2, 4, 8}}));
  EXPECT_EQ(cache[7].name, "layers.3.v_cache");
  EXPECT_EQ(cache[7].type.shape.dim(2), 1007);
  EXPECT_EQ(DecodeCache(config, DType::kF32, 1, 2, 1)[0].type.shape.dim(2), 2);
}

TEST(DecodeGraph, OnlyTheLastTokensLogitsWhereAsked) {
  const Config config = SmallConfig();
  const HostTensor tokens = FormulaTokens(config, 2, 6);
  const RefTensor full = FullLogits(config, tokens);
  const auto graph = DecodeGraph(config, {.batch = 2,
                                          .chunk = 6,
                                          .max_chunk = 6,
                                          .max_length = 6,
                                          .dtype = DType::kF32,
                                          .all_logits = false,
                                          .mesh = {}});
  std::vector<RefTensor> arguments = SingleWeights(config);
  for (const DecodeTensor& tensor : DecodeCache(config, DType::kF32, 2, 6, 6))
    arguments.push_back(RefTensor::Zeros(tensor.type));
  arguments.push_back(RefTensor::FromHost(tokens));
  arguments.push_back({{DType::kI32, {2}}, {0, 0}});
  arguments.push_back({{DType::kI32, {2}}, {6, 2}});
  const RefTensor logits = Interpret(*graph, arguments, {.round = false})[0];
  const int64_t V = config.vocab_size;
  for (int64_t v = 0; v < V; ++v) {
    EXPECT_NEAR(logits.data[static_cast<size_t>(v)], full.data[static_cast<size_t>(5 * V + v)],
                1e-9);
    EXPECT_NEAR(logits.data[static_cast<size_t>(V + v)],
                full.data[static_cast<size_t>((6 + 1) * V + v)], 1e-9);
  }
}

}  // namespace
}  // namespace ulmus::nn::olmo3
