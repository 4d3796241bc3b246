// Sequences that grow on a device: prompts are read in chunks, then one token at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "infer/model.h"
#include "nn/olmo3/config.h"
#include "pjrt/client.h"
#include "tensor/host_tensor.h"

namespace ulmus::infer {

struct DecoderOptions {
  int64_t batch = 1;
  int64_t max_length = 0;  // of a sequence, prompt and continuation
  int64_t chunk = 256;     // of a prompt, per call
  DType dtype = DType::kF32;
  Mesh mesh = {};
};

// One batch of sequences of any lengths. One thread; the client must outlive it.
class Decoder {
 public:
  // `weights` as UnstackedTargets() lists them, on the same mesh; they must outlive the decoder.
  static Result<std::unique_ptr<Decoder>> Create(pjrt::Client& client,
                                                 const nn::olmo3::Config& config,
                                                 std::vector<pjrt::ShardedArray>& weights,
                                                 const DecoderOptions& options,
                                                 pjrt::CompilationCache* cache);

  // Forgets all sequences.
  void Restart();
  // Appends tokens[b] to sequence b, for every b; nothing where empty. Returns logits f32 [B,V]
  // after the last token of each; rows of nothing are arbitrary. kInvalidArgument for an id outside
  // the vocabulary or a sequence beyond max_length, naming it; nothing is appended then.
  Result<HostTensor> Append(std::span<const std::vector<int32_t>> tokens);

  int64_t length(int64_t b) const { return lengths_[static_cast<size_t>(b)]; }
  const DecoderOptions& options() const { return options_; }
  double compile_s() const { return compile_s_; }

 private:
  Decoder(pjrt::Client& client, nn::olmo3::Config config, std::vector<pjrt::ShardedArray>& weights,
          DecoderOptions options)
      : client_(client),
        config_(std::move(config)),
        weights_(weights),
        options_(std::move(options)),
        lengths_(static_cast<size_t>(options_.batch), 0) {}
  Status MakeCache();
  Status CheckTokens(std::span<const std::vector<int32_t>> tokens) const;
  // One call of a program: at most `chunk` tokens per row, from tokens[b][first..].
  Result<HostTensor> Run(pjrt::Executable& program, int64_t chunk, int64_t first,
                         std::span<const std::vector<int32_t>> tokens);

  pjrt::Client& client_;
  nn::olmo3::Config config_;
  std::vector<pjrt::ShardedArray>& weights_;
  DecoderOptions options_;
  std::vector<int64_t> lengths_;
  std::vector<pjrt::ShardedArray> cache_;
  std::unique_ptr<pjrt::Executable> prefill_, decode_;  // the same if chunk is 1
  double compile_s_ = 0;
};

}  // namespace ulmus::infer
