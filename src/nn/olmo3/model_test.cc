// The forward pass and its gradients in double against the golden tiny model.
#include "nn/olmo3/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "graph/interpret.h"
#include "graph/ops.h"
#include "nn/olmo3/sharding.h"
#include "nn/olmo3/testing/golden.h"

namespace ulmus::nn::olmo3 {
namespace {

using graph::Graph;
using graph::RefTensor;
using graph::Value;
using graph::Values;

std::vector<RefTensor> Arguments(const Config& config, const LossProgramOptions& options) {
  std::vector<RefTensor> arguments = FormulaWeights(config);
  arguments.push_back(RefTensor::FromHost(FormulaTokens(config, options.B, options.T)));
  return arguments;
}

double Norm(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

class Variants : public testing::TestWithParam<const char*> {};

TEST_P(Variants, EqualTheGoldenInDouble) {
  const Golden golden = LoadGolden();
  for (const GoldenVariant& variant : GoldenVariants(golden)) {
    if (std::string_view(variant.name) != GetParam()) continue;
    const auto& want = golden.json[variant.name];
    LossProgramOptions options;
    options.logits = true;
    const auto graph = LossProgram(variant.config, options);
    const auto got = Interpret(*graph, Arguments(variant.config, options), {.round = false});
    const int64_t V = variant.config.vocab_size;
    for (int64_t t = 0; t < 12; ++t) {
      for (int64_t v = 0; v < V; ++v) {
        const double expected = want["logits"][static_cast<size_t>(t)][static_cast<size_t>(v)];
        // The rotary frequencies are rounded to f32.
        ASSERT_NEAR(got[0].data[static_cast<size_t>(t * V + v)], expected, 2e-6)
            << "position " << t << " token " << v;
      }
    }
    EXPECT_NEAR(got[1].data[0], want["ce"].get<double>(), 1e-6);
    EXPECT_NEAR(got[2].data[0], want["z"].get<double>(), 1e-10);
    for (const HfTensor& tensor : HfTensors(variant.config)) {
      const auto size = static_cast<size_t>(tensor.shape.num_elements());
      const auto first = static_cast<size_t>(std::max<int64_t>(tensor.group, 0)) * size;
      const auto grad =
          std::span(got[3 + static_cast<size_t>(tensor.parameter)].data).subspan(first, size);
      const auto& expected = want["grads"][tensor.name];
      const double norm = expected["norm"];
      EXPECT_NEAR(Norm(grad), norm, 1e-5 * norm) << tensor.name;
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(grad[i], expected["first3"][i].get<double>(), 1e-5 * norm)
            << tensor.name << " element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Variants,
                         testing::Values("default", "yarn_full_attention_only",
                                         "yarn_all_layers_maxtext"),
                         [](const auto& test) { return std::string(test.param); });

// What a program of pieces computes, in double.
std::vector<RefTensor> Evaluate(const Graph& graph, std::vector<RefTensor> arguments) {
  return Interpret(graph, arguments, {.round = false});
}

// Intermediate values of a forward pass by name.
std::map<std::string, RefTensor> Intermediates(const Config& config, int64_t T) {
  Graph graph("capture", {}, DefaultRules(config, {}));
  const Weights weights = BindWeights(config, DeclareParameters(graph, config));
  const Value tokens = graph.Parameter("tokens", {DType::kI32, {1, T}});
  std::vector<std::string> names;
  const ForwardOptions options{
      .dtype = DType::kF32, .scan = false, .capture = [&](const std::string& name, Value value) {
        names.push_back(name);
        graph.Result(name, value);
      }};
  Logits(config, weights, Hidden(config, weights, {.tokens = tokens}, options), options);
  std::vector<RefTensor> arguments = FormulaWeights(config);
  arguments.push_back(RefTensor::FromHost(FormulaTokens(config, 1, T)));
  const auto values = Evaluate(graph, arguments);
  std::map<std::string, RefTensor> result;
  for (size_t i = 0; i < names.size(); ++i) result[names[i]] = values[i];
  return result;
}

TEST(Model, CapturesWhatParityCompares) {
  const Config config = LoadGolden().config;
  const auto values = Intermediates(config, 6);
  EXPECT_EQ(values.size(), 3u + 4 * 7);
  EXPECT_EQ(values.at("embedding").type.shape, (Shape{1, 6, 64}));
  EXPECT_EQ(values.at("layers.3.q_norm").type.shape, (Shape{1, 6, 64}));
  EXPECT_EQ(values.at("layers.0.k_rope").type.shape, (Shape{1, 6, 2, 16}));
  EXPECT_EQ(values.at("layers.2.attention").type.shape, (Shape{1, 6, 64}));
  EXPECT_EQ(values.at("layers.1.mlp").type.shape, (Shape{1, 6, 64}));
  EXPECT_EQ(values.at("final_norm").type.shape, (Shape{1, 6, 64}));
  EXPECT_EQ(values.at("logits").type.shape, (Shape{1, 6, 97}));
}

// huggingface/transformers#45945: the scaled table on sliding-window layers. Queries and keys, both
// halves of a head, positions on both sides of the original context of 8.
TEST(Model, YarnScalesFullAttentionLayersOnly) {
  Config config = LoadGolden().config;
  config.yarn = Yarn{.factor = 4, .original_context = 8};
  constexpr int64_t kT = 12;
  const auto values = Intermediates(config, kT);
  const int64_t half = config.head_dim / 2;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool full = layer == 3;
    // Frequencies and factor by definition, for this layer.
    const double low = 0, high = 1;  // 16 ln(8/(64 pi)) < 0; ceil(16 ln(8/(2 pi)) / 26.2) = 1
    const double scale = full ? 0.1 * std::log(4.0) + 1 : 1;
    for (const auto& [letter, heads] :
         {std::pair('q', config.num_heads), std::pair('k', config.num_kv_heads)}) {
      const RefTensor &normed = values.at(fmt::format("layers.{}.{}_norm", layer, letter)),
                      &rotated = values.at(fmt::format("layers.{}.{}_rope", layer, letter));
      ASSERT_EQ(normed.data.size(), static_cast<size_t>(kT * heads * config.head_dim));
      for (int64_t t = 0; t < kT; ++t) {
        for (int64_t n = 0; n < heads; ++n) {
          for (int64_t j = 0; j < half; ++j) {
            const double inv =
                std::pow(500000.0, -static_cast<double>(j) / static_cast<double>(half));
            const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
            const double angle =
                static_cast<double>(t) * (full ? inv / 4 * ramp + inv * (1 - ramp) : inv);
            const auto at = static_cast<size_t>((t * heads + n) * config.head_dim + j);
            const auto other = at + static_cast<size_t>(half);
            const double a = normed.data[at], b = normed.data[other];
            ASSERT_NEAR(rotated.data[at], scale * (a * std::cos(angle) - b * std::sin(angle)), 2e-6)
                << letter << " of layer " << layer << " position " << t << " element " << j;
            ASSERT_NEAR(rotated.data[other], scale * (b * std::cos(angle) + a * std::sin(angle)),
                        2e-6)
                << letter << " of layer " << layer << " position " << t << " element " << j + half;
          }
        }
      }
    }
  }
}

// A weight of FormulaWeights by its Hugging Face name, [out,in] row-major.
std::vector<double> WeightNamed(const Config& config, const std::string& name) {
  const std::vector<RefTensor> stacked = FormulaWeights(config);
  for (const HfTensor& tensor : HfTensors(config)) {
    if (tensor.name != name) continue;
    const auto size = static_cast<std::ptrdiff_t>(tensor.shape.num_elements());
    const auto& data = stacked[static_cast<size_t>(tensor.parameter)].data;
    const auto begin = data.begin() + std::max<int64_t>(tensor.group, 0) * size;
    return {begin, begin + size};
  }
  CHECK(false, "no tensor {}", name);
}

// x [T,in] times w [out,in] transposed: [T,out].
std::vector<double> Project(const std::vector<double>& x, const std::vector<double>& w, int64_t T) {
  const size_t rows = static_cast<size_t>(T), in = x.size() / rows, out = w.size() / in;
  std::vector<double> y(rows * out, 0);
  for (size_t t = 0; t < rows; ++t) {
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) y[t * out + o] += x[t * in + i] * w[o * in + i];
    }
  }
  return y;
}

// The rest of what layers do with rotated queries and keys: values are not rotated, the window and
// its keys are those of the layer, on both sides of YaRN's original context.
TEST(Model, ValuesAreNotRotatedAndLayersReadTheKeysOfTheirKind) {
  Config config = LoadGolden().config;
  config.yarn = Yarn{.factor = 4, .original_context = 8};
  constexpr int64_t kT = 12;
  const auto values = Intermediates(config, kT);
  const int64_t N = config.num_heads, K = config.num_kv_heads, H = config.head_dim;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.self_attn.", layer);
    const std::string x = layer == 0 ? "embedding" : fmt::format("layers.{}.output", layer - 1);
    const auto v = Project(values.at(x).data, WeightNamed(config, prefix + "v_proj.weight"), kT);
    const auto& q = values.at(fmt::format("layers.{}.q_rope", layer)).data;
    const auto& k = values.at(fmt::format("layers.{}.k_rope", layer)).data;
    std::vector<double> heads(static_cast<size_t>(kT * N * H), 0);
    for (int64_t t = 0; t < kT; ++t) {
      for (int64_t n = 0; n < N; ++n) {
        const auto key = [&](int64_t s) { return static_cast<size_t>((s * K + n / (N / K)) * H); };
        const auto row = static_cast<size_t>((t * N + n) * H);
        double total = 0;
        const int64_t first = config.is_full(layer) ? 0 : std::max<int64_t>(0, t - 3);
        for (int64_t s = first; s <= t; ++s) {
          double score = 0;
          for (size_t h = 0; h < static_cast<size_t>(H); ++h) score += q[row + h] * k[key(s) + h];
          const double p = std::exp(score / std::sqrt(static_cast<double>(H)));
          total += p;
          for (size_t h = 0; h < static_cast<size_t>(H); ++h) heads[row + h] += p * v[key(s) + h];
        }
        for (size_t h = 0; h < static_cast<size_t>(H); ++h) heads[row + h] /= total;
      }
    }
    const auto want = Project(heads, WeightNamed(config, prefix + "o_proj.weight"), kT);
    const auto& got = values.at(fmt::format("layers.{}.attention", layer)).data;
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-6) << "layer " << layer << " element " << i;
  }
}

TEST(Model, ATiedHeadSumsBothGradients) {
  Config untied = LoadGolden().config, tied = untied;
  tied.tie_word_embeddings = true;
  const LossProgramOptions options;
  auto untied_arguments = Arguments(untied, options), tied_arguments = untied_arguments;
  // The untied model with equal tensors: the head is the last weight, before the tokens.
  const size_t head = untied_arguments.size() - 2;
  untied_arguments[head].data = untied_arguments[0].data;
  tied_arguments.erase(tied_arguments.begin() + static_cast<int64_t>(head));
  const auto a = Evaluate(*LossProgram(untied, options), untied_arguments),
             b = Evaluate(*LossProgram(tied, options), tied_arguments);
  EXPECT_NEAR(a[0].data[0], b[0].data[0], 1e-12);
  for (size_t i = 0; i < b[2].data.size(); ++i) {
    ASSERT_NEAR(b[2].data[i], a[2].data[i] + a[2 + head].data[i], 1e-12) << i;
  }
}

TEST(Model, PaddingRowsAreInTheSoftmaxAndNotInTheLogits) {
  const Config exact = LoadGolden().config;
  Config padded = exact;
  padded.vocab_multiple = 128;
  LossProgramOptions options;
  options.logits = true;
  const auto a = Evaluate(*LossProgram(exact, options), Arguments(exact, options)),
             b = Evaluate(*LossProgram(padded, options), Arguments(padded, options));
  EXPECT_EQ(b[0].type.shape, (Shape{1, 12, 97}));
  double ce = 0;
  for (size_t t = 0; t + 1 < 12; ++t) {
    double sum = 31;  // 128 - 97 rows of zeros
    for (size_t v = 0; v < 97; ++v) {
      ASSERT_NEAR(a[0].data[t * 97 + v], b[0].data[t * 97 + v], 1e-12);
      sum += std::exp(a[0].data[t * 97 + v]);
    }
    const auto label =
        static_cast<size_t>(FormulaTokens(exact, 1, 12).Get(static_cast<int64_t>(t) + 1));
    ce += (std::log(sum) - a[0].data[t * 97 + label]) / 11;
  }
  EXPECT_NEAR(b[1].data[0], ce, 1e-10);
}

// Documents of lengths 5, 1 and 6 in one row give the logits of each alone.
TEST(Model, DocumentsInOneRowEqualTheDocumentsAlone) {
  const Config config = LoadGolden().config;
  const auto logits = [&](std::vector<double> tokens, std::vector<double> documents) {
    Graph graph("documents", {}, DefaultRules(config, {}));
    const Weights weights = BindWeights(config, DeclareParameters(graph, config));
    const TensorType type{DType::kI32, {1, static_cast<int64_t>(tokens.size())}};
    const Value ids = graph.Parameter("tokens", type),
                segments = graph.Parameter("segment_ids", type);
    const ForwardOptions options{.dtype = DType::kF32};
    const Inputs inputs{
        .tokens = ids, .positions = DocumentPositions(segments), .segment_ids = segments};
    graph.Result("logits",
                 Logits(config, weights, Hidden(config, weights, inputs, options), options));
    auto arguments = FormulaWeights(config);
    arguments.push_back({type, std::move(tokens)});
    arguments.push_back({type, std::move(documents)});
    return Evaluate(graph, arguments)[0].data;
  };
  const std::vector<double> tokens = {5, 15, 39, 77, 32, 1, 81, 78, 89, 17, 56, 12};
  const auto packed = logits(tokens, {0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2, 2});
  size_t start = 0;
  for (const size_t length : {5u, 1u, 6u}) {
    const auto first = tokens.begin() + static_cast<int64_t>(start);
    const auto alone =
        logits({first, first + static_cast<int64_t>(length)}, std::vector<double>(length, 0));
    for (size_t i = 0; i < alone.size(); ++i) {
      ASSERT_NEAR(packed[start * 97 + i], alone[i], 1e-9) << "document at " << start;
    }
    start += length;
  }
}

TEST(Model, PositionsRestartWithEachDocument) {
  Graph graph("positions");
  const TensorType type{DType::kI32, {2, 7}};
  graph.Result("positions", DocumentPositions(graph.Parameter("segment_ids", type)));
  const auto got = Evaluate(graph, {{type, {0, 0, 0, 1, 2, 2, 2, 5, 4, 4, 4, 4, 5, 5}}});
  EXPECT_EQ(got[0].data, (std::vector<double>{0, 1, 2, 0, 0, 1, 2, 0, 0, 1, 2, 3, 0, 1}));
}

TEST(Model, LabelsAreMaskedBeforeTheShift) {
  Graph graph("labels");
  const TensorType type{DType::kI32, {1, 5}}, mask_type{DType::kBool, {1, 5}};
  const Value tokens = graph.Parameter("tokens", type),
              mask = graph.Parameter("loss_mask", mask_type);
  graph.Result("all", ShiftLabels(tokens));
  graph.Result("masked", ShiftLabels(tokens, mask));
  const auto got = Evaluate(graph, {{type, {3, 1, 4, 1, 5}}, {mask_type, {0, 1, 0, 1, 1}}});
  EXPECT_EQ(got[0].data, (std::vector<double>{1, 4, 1, 5, -100}));
  EXPECT_EQ(got[1].data, (std::vector<double>{1, -100, 1, 5, -100}));
}

// The sums leave out what is masked, z-loss included.
TEST(Model, LossSumsCountLabelsOnly) {
  const Config config = LoadGolden().config;
  const auto sums = [&](std::vector<double> labels) {
    Graph graph("loss", {}, DefaultRules(config, {}));
    const Weights weights = BindWeights(config, DeclareParameters(graph, config));
    const TensorType type{DType::kI32, {1, 12}};
    const Value tokens = graph.Parameter("tokens", type), label = graph.Parameter("labels", type);
    const ForwardOptions options{.dtype = DType::kF32};
    const Value hidden = Hidden(config, weights, {.tokens = tokens}, options);
    const LossSums loss = ComputeLossSums(config, weights, hidden, label, options);
    graph.Result("nll", loss.nll);
    graph.Result("z", loss.z);
    graph.Result("count", loss.count);
    auto arguments = FormulaWeights(config);
    arguments.push_back(RefTensor::FromHost(FormulaTokens(config, 1, 12)));
    arguments.push_back({type, std::move(labels)});
    const auto got = Evaluate(graph, arguments);
    return std::array{got[0].data[0], got[1].data[0], got[2].data[0]};
  };
  std::vector<double> first(12, -100), second(12, -100), both(12, -100);
  first[2] = both[2] = 7;
  second[9] = both[9] = 96;
  second[4] = 97;  // no token
  const auto a = sums(first), b = sums(second), c = sums(both);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(a[i] + b[i], c[i], 1e-12);
  EXPECT_EQ(c[2], 2);
  EXPECT_GT(a[1], 0);
}

}  // namespace
}  // namespace ulmus::nn::olmo3
