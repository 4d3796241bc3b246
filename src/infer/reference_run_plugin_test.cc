// Held-out losses of a model that PyTorch trained, from its weights: a run kept outside the
// repository (10 MB of weights), in the folder that ULMUS_REFERENCE_RUN names. It holds
// config.json, final.safetensors and heldout/<set>.npy, token ids as little-endian uint32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "infer/sequence_model.h"
#include "pjrt/testing.h"

namespace ulmus::infer {
namespace {

constexpr int32_t kEndOfText = 4094;
constexpr int64_t kLength = 256;

// The first kLength tokens of each document, its end-of-text token counted.
std::vector<std::vector<int32_t>> Documents(const Path& path) {
  const std::string bytes = ReadFile(path).value();
  std::vector<std::vector<int32_t>> documents(1);
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    int32_t id = 0;
    std::memcpy(&id, bytes.data() + at, 4);
    documents.back().push_back(id);
    if (id == kEndOfText) documents.emplace_back();
  }
  if (documents.back().empty()) documents.pop_back();
  for (auto& document : documents)
    document.resize(std::min(document.size(), static_cast<size_t>(kLength)));
  return documents;
}

// -log softmax(row)[id], in double.
double CrossEntropy(std::span<const float> row, int32_t id) {
  const double top = *std::ranges::max_element(row);
  double sum = 0;
  for (const float x : row) sum += std::exp(x - top);
  return top + std::log(sum) - row[static_cast<size_t>(id)];
}

struct Loss {
  double sum = 0;
  int64_t count = 0;
};

// Over the tokens that a document predicts; what stands behind it changes nothing.
Status AddDocument(SequenceModel& model, const std::vector<int32_t>& document, Loss& loss) {
  std::vector<int32_t> padded = document;
  padded.resize(static_cast<size_t>(kLength), kEndOfText);
  TRY(model.SetTokens(padded));
  const auto predicted = static_cast<int64_t>(document.size()) - 1;
  const auto vocab = static_cast<size_t>(model.vocab_size());
  for (int64_t first = 0; first < predicted; first += model.rows_per_call()) {
    const HostTensor logits = TRY(model.Logits(first));
    const auto rows = std::min(logits.shape().dim(0), predicted - first);
    for (int64_t row = 0; row < rows; ++row) {
      const auto values = logits.values<float>().subspan(static_cast<size_t>(row) * vocab, vocab);
      loss.sum += CrossEntropy(values, document[static_cast<size_t>(first + row + 1)]);
      ++loss.count;
    }
  }
  return {};
}

TEST(ReferenceRun, HeldOutLossesOfTheFinalWeights) {
  const char* folder = std::getenv("ULMUS_REFERENCE_RUN");
  if (folder == nullptr) GTEST_SKIP() << "set ULMUS_REFERENCE_RUN to the folder of the run";
  const auto client = pjrt::SharedDefaultClient();
  if (!client.ok()) GTEST_SKIP() << client.status().message();
  const auto checkpoint = OpenCheckpoint(Path(folder) / "final.safetensors");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const auto model = SequenceModel::Create(
      **client, *checkpoint, {.length = kLength, .dtype = DType::kF32, .intermediates = false},
      nullptr);
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  // PyTorch in float32 on the same bfloat16 weights; five decimals are stated.
  const struct {
    const char* set;
    int64_t tokens;
    double loss;
  } rows[] = {
      {"bible", 15461, 3.99645}, {"dictionary", 16320, 3.59944}, {"computing", 16320, 4.17096}};
  for (const auto& row : rows) {
    Loss loss;
    for (const auto& document :
         Documents(Path(folder) / "heldout" / (std::string(row.set) + ".npy"))) {
      const Status added = AddDocument(**model, document, loss);
      ASSERT_TRUE(added.ok()) << added.ToString();
    }
    const double mean = loss.sum / static_cast<double>(loss.count);
    fmt::print("{}: {:.8f} over {} tokens\n", row.set, mean, loss.count);
    EXPECT_EQ(loss.count, row.tokens) << row.set;
    EXPECT_NEAR(mean, row.loss, 1e-5) << row.set;
  }
}

}  // namespace
}  // namespace ulmus::infer
