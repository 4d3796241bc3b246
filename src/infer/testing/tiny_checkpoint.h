// The tiny model of nn/olmo3/testdata as a Hugging Face directory, and as a parity file of its
// logits, which another program computed in double. No test framework in here.
#pragma once

#include <map>
#include <string>

#include "base/file.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/testing/memory_source.h"
#include "nn/olmo3/testing/golden.h"

namespace ulmus::infer {

inline std::map<std::string, HostTensor> TinyWeights(const nn::olmo3::Config& config) {
  const auto stacked = nn::olmo3::FormulaWeights(config);
  std::map<std::string, HostTensor> tensors;
  for (const nn::olmo3::HfTensor& tensor : nn::olmo3::HfTensors(config)) {
    HostTensor weight(TensorType{DType::kF32, tensor.shape});
    const auto& data = stacked[static_cast<size_t>(tensor.parameter)].data;
    const int64_t first = std::max<int64_t>(tensor.group, 0) * weight.num_elements();
    for (int64_t i = 0; i < weight.num_elements(); ++i)
      weight.Set(i, data[static_cast<size_t>(first + i)]);
    tensors.emplace(tensor.name, std::move(weight));
  }
  return tensors;
}

inline void WriteTinyCheckpoint(const Path& folder, const nn::olmo3::Config& config,
                                std::map<std::string, HostTensor> weights) {
  CHECK(CreateDirectories(folder).ok());
  const Status written = checkpoint::WriteSafetensors(folder / "model.safetensors",
                                                      checkpoint::MemorySource(std::move(weights)));
  CHECK(written.ok(), "{}", written.message());
  CHECK(WriteFileAtomic(folder / "config.json", nn::olmo3::ConfigToHf(config)).ok());
}

// `variant` of the golden file: tokens [1,12] and logits [1,12,V], and `more` tensors.
inline void WriteGoldenLogits(const Path& path, const std::string& variant,
                              std::map<std::string, HostTensor> more = {}) {
  const nn::olmo3::Golden golden = nn::olmo3::LoadGolden();
  const auto T = static_cast<int64_t>(golden.tokens.size()), V = golden.config.vocab_size;
  HostTensor tokens(TensorType{DType::kI64, {1, T}}), logits(TensorType{DType::kF32, {1, T, V}});
  for (int64_t t = 0; t < T; ++t) {
    tokens.Set(t, golden.tokens[static_cast<size_t>(t)]);
    for (int64_t v = 0; v < V; ++v)
      logits.Set(t * V + v,
                 golden.json[variant]["logits"][static_cast<size_t>(t)][static_cast<size_t>(v)]
                     .get<double>());
  }
  more.emplace("tokens", std::move(tokens));
  more.emplace("logits", std::move(logits));
  const Status written =
      checkpoint::WriteSafetensors(path, checkpoint::MemorySource(std::move(more)));
  CHECK(written.ok(), "{}", written.message());
}

}  // namespace ulmus::infer
