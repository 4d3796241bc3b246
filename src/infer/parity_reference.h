// What a model is compared with: logits and intermediate tensors from a file, or another model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensor_source.h"
#include "infer/parity.h"
#include "infer/sequence_model.h"
#include "tensor/host_tensor.h"

namespace ulmus::infer {

// Sequences of token ids, all of one length.
struct TokenBatch {
  int64_t length = 0;                           // T
  std::vector<std::vector<int32_t>> sequences;  // B of them
};

// One thread.
class ParityReference {
 public:
  virtual ~ParityReference() = default;
  virtual int64_t vocab_size() const = 0;
  // Turns to sequence `b` of the batch; the functions below speak of it.
  virtual Status SetSequence(int64_t b, std::span<const int32_t> tokens) = 0;
  // f32 [n,V] of positions [first, first + n).
  virtual Result<HostTensor> Logits(int64_t first, int64_t n) = 0;
  // Names of the intermediate tensors there are, in the order of the forward pass.
  virtual std::vector<std::string> Intermediates() const = 0;
  // f32, the first `length` rows.
  virtual Result<HostTensor> Intermediate(const std::string& name, int64_t length) = 0;
};

// A parity file: safetensors with `tokens`, `logits` and perhaps intermediate tensors
// (docs/formats/parity_file.md).
class ParityFile : public ParityReference {
 public:
  // Reads the tokens only. `config` is that of the model to be compared. kDataLoss or
  // kInvalidArgument names the tensor, what it is and what it should be.
  static Result<std::unique_ptr<ParityFile>> Open(const Path& path,
                                                  const nn::olmo3::Config& config);

  const TokenBatch& tokens() const { return tokens_; }
  int64_t vocab_size() const override { return vocab_size_; }
  Status SetSequence(int64_t b, std::span<const int32_t> tokens) override;
  Result<HostTensor> Logits(int64_t first, int64_t n) override;
  std::vector<std::string> Intermediates() const override { return intermediates_; }
  Result<HostTensor> Intermediate(const std::string& name, int64_t length) override;

 private:
  Status CheckLogits(const Path& path, const nn::olmo3::Config& config);
  Status CheckIntermediates(const Path& path, const nn::olmo3::Config& config);
  // Elements [first, first + n) of a tensor, as f32.
  Result<HostTensor> ReadFloats(int64_t index, int64_t first, Shape shape) const;

  std::unique_ptr<checkpoint::TensorSource> source_;
  TokenBatch tokens_;
  int64_t vocab_size_ = 0, logits_ = 0, sequence_ = 0;
  std::vector<std::string> intermediates_;
};

// `tokens` of a safetensors file: integers [B,T] or [T].
Result<TokenBatch> ReadTokens(const checkpoint::TensorSource& source, const Path& path);

// Another model. It must outlive the reference.
class ModelReference : public ParityReference {
 public:
  ModelReference(SequenceModel& model, const nn::olmo3::Config& config)
      : model_(model), config_(config) {}
  int64_t vocab_size() const override { return model_.vocab_size(); }
  Status SetSequence(int64_t, std::span<const int32_t> tokens) override {
    return model_.SetTokens(tokens);
  }
  Result<HostTensor> Logits(int64_t first, int64_t n) override;
  std::vector<std::string> Intermediates() const override;
  // All rows: the model has the length of its sequence.
  Result<HostTensor> Intermediate(const std::string& name, int64_t) override {
    return model_.Intermediate(name);
  }

 private:
  SequenceModel& model_;
  const nn::olmo3::Config& config_;
};

struct ParityReport {
  ParityStats stats;
  std::vector<TensorParity> tensors;  // in the order of the forward pass; those both sides have
};

// Runs all sequences through both. They may be the beginnings of those of a parity file.
// Intermediate tensors are compared if `ours` keeps them.
Result<ParityReport> CompareModels(SequenceModel& ours, ParityReference& reference,
                                   const TokenBatch& tokens, double intermediate_limit);

}  // namespace ulmus::infer
