// Logits and intermediate tensors of whole sequences, by the forward pass of training: what parity
// compares. (infer/decoder.h generates.)
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "infer/model.h"
#include "pjrt/client.h"
#include "tensor/host_tensor.h"

namespace ulmus::infer {

struct SequenceModelOptions {
  int64_t length = 0;  // T, of the sequences
  DType dtype = DType::kF32;
  bool intermediates = false;  // layer by layer, keeping them; else scanned, as in training
};

// Names of the intermediate tensors in the order of the forward pass, as nn/olmo3/model.h captures
// them: "embedding"; per layer "layers.<l>." and q_norm, k_norm, q_rope, k_rope, attention, mlp,
// output; "final_norm".
std::vector<std::string> IntermediateNames(const nn::olmo3::Config& config);

// One sequence at a time. One thread; the client must outlive it.
class SequenceModel {
 public:
  static Result<std::unique_ptr<SequenceModel>> Create(pjrt::Client& client,
                                                       const Checkpoint& checkpoint,
                                                       const SequenceModelOptions& options,
                                                       pjrt::CompilationCache* cache);

  // Runs the forward pass over `tokens` (T of them). kInvalidArgument for ids outside the
  // vocabulary.
  Status SetTokens(std::span<const int32_t> tokens);
  // Logits f32 [n,V] of positions [first, first + n) of those tokens, n = min(rows_per_call(), T -
  // first).
  Result<HostTensor> Logits(int64_t first);
  int64_t rows_per_call() const { return rows_; }
  // Of those tokens, f32 [1,T,...]; kNotFound for an unknown name.
  Result<HostTensor> Intermediate(const std::string& name) const;

  int64_t vocab_size() const { return vocab_size_; }
  const SequenceModelOptions& options() const { return options_; }

 private:
  SequenceModel(pjrt::Client& client, SequenceModelOptions options)
      : client_(client), options_(std::move(options)) {}
  pjrt::Client& client_;
  SequenceModelOptions options_;
  int64_t vocab_size_ = 0, rows_ = 0;
  size_t head_ = 0;  // index into weights_
  std::vector<pjrt::ShardedArray> weights_;
  std::unique_ptr<pjrt::Executable> hidden_program_, logits_program_;
  std::map<std::string, size_t> intermediate_index_;  // into results of hidden_program_
  std::vector<pjrt::ShardedArray> results_;
};

}  // namespace ulmus::infer
