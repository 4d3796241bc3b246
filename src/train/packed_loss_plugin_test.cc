// The weight that the training step gives each token of a packed instance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <span>

#include "base/file.h"
#include "base/random.h"
#include "data/config.h"
#include "nn/olmo3/sharding.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"
#include "train/step_program.h"

namespace ulmus::train {
namespace {

using nn::olmo3::Config;
using nn::olmo3::LayerType;

constexpr int64_t kLength = 16, kWidth = 32, kVocab = 64, kEos = 9, kPad = 8, kUnused = 60;

Config Model() {
  return {.vocab_size = kVocab,
          .hidden_size = kWidth,
          .intermediate_size = 48,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 8,
          .layer_pattern = {LayerType::kSliding, LayerType::kFull},
          .sliding_window = 5,
          .max_position_embeddings = 64,
          .vocab_multiple = 8};
}

// Three documents in one instance, and padding; no token but the EOS comes twice.
struct Packed {
  data::Data data;
  std::unique_ptr<data::Loader> loader;
  const data::Batch* batch = nullptr;
};
Result<Packed> ReadPacked(const Path& folder) {
  const uint32_t tokens[] = {10, 11, 12, kEos, 20, 21, kEos, 30, 31, 32, 33, kEos};
  TRY(WriteFileAtomic(folder / "a.npy", std::as_bytes(std::span(tokens))));
  data::DataConfig config;
  config.paths = {"a.npy"};
  config.base_dir = folder;
  config.cache_dir = folder;
  config.vocab_size = kVocab;
  config.eos_id = kEos;
  config.pad_id = kPad;
  config.dataset = "packed";
  config.sequence_length = kLength;
  config.global_batch = 1;
  config.document_mask = true;
  Packed packed{.data = TRY(data::OpenData(config)), .loader = nullptr};
  packed.loader =
      TRY(data::Loader::Create(*packed.data.source, *packed.data.order, packed.data.loader));
  packed.batch = TRY(packed.loader->Next());
  return packed;
}

HostTensor Argument(const ProgramValue& value, const data::Batch& batch) {
  HostTensor t(value.type);
  const HostTensor* of_batch = value.name == "tokens"        ? &batch.tokens
                               : value.name == "loss_mask"   ? &batch.loss_mask
                               : value.name == "segment_ids" ? &batch.segment_ids
                                                             : nullptr;
  const bool norm = value.name.find("norm") != std::string::npos;
  const RandomStream stream(1, 0, "test", value.name);
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    double x = 0;  // the head, so that all tokens are equally likely; moments; added_count
    if (value.name.starts_with("model."))
      x = norm ? 1 : UniformAt(stream, static_cast<uint64_t>(i)) - 0.5;
    if (of_batch != nullptr) x = of_batch->Get(i);
    if (value.name == "lr") x = 1e-3;
    if (value.name.ends_with("_limit")) x = 1e30;
    t.Set(i, x);
  }
  return t;
}

// B20: segment numbers must not weigh the loss. With a head of zeros all probabilities are 1 / V,
// so the gradient of the head's row of a token that is the target at t alone is, beside what all
// rows share, -w_t h_t; and all h_t have one norm, for they come out of an RMSNorm.
TEST(PackedLoss, AllDocumentsTokensPullEquallyAtTheHead) {
  const auto client = pjrt::SharedDefaultClient(1);
  if (!client.ok()) GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
  const TempDir dir;
  const auto packed = ReadPacked(dir.path());
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  const data::Batch& batch = *packed->batch;
  const StepOptions options{.forward = {.dtype = DType::kF32, .remat = "none"},
                            .global_batch = 1,
                            .sequence_length = kLength,
                            .documents = true};
  const auto program = StepProgram(Model(), options, {}, nn::olmo3::DefaultRules(Model(), {}));
  ASSERT_TRUE(program.ok()) << program.status().message();
  std::vector<HostTensor> arguments;
  size_t moment = program->arguments.size();
  for (const ProgramValue& value : program->arguments) {
    if (value.name == "exp_avg.lm_head.weight") moment = arguments.size();
    arguments.push_back(Argument(value, batch));
  }
  ASSERT_LT(moment, arguments.size());
  const auto results = pjrt::RunOnce(**client, *program, arguments);
  ASSERT_TRUE(results.ok()) << results.status().message();
  EXPECT_EQ((*results)[StepMetric::kCount].Get(0), 11);
  EXPECT_NEAR((*results)[StepMetric::kLoss].Get(0), std::log(kVocab), 1e-5);
  const HostTensor& gradient = (*results)[StepMetric::kNum + moment];  // times one factor
  const auto pull = [&](int64_t token) {
    double squares = 0;
    for (int64_t d = 0; d < kWidth; ++d) {
      const double own = gradient.Get(token * kWidth + d) - gradient.Get(kUnused * kWidth + d);
      squares += own * own;
    }
    return std::sqrt(squares);
  };
  const double first = pull(11);
  EXPECT_GT(first, 1e-4);
  // Of all three documents; the EOS before predicts the first token of the later ones.
  for (const int64_t token : {31, 32, 33, 10, 12, 20, 21})
    EXPECT_NEAR(pull(token) / first, 1, 1e-3) << "token " << token;
  EXPECT_NEAR(pull(30) / first, 0, 1e-3);  // the longest document comes first: no target
  EXPECT_NEAR(pull(kPad) / first, 0, 1e-3);
}

}  // namespace
}  // namespace ulmus::train
