// A checkpoint made ready to compute with: its configuration, and its weights on devices.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensor_source.h"
#include "graph/value.h"
#include "nn/olmo3/config.h"
#include "pjrt/client.h"

namespace ulmus::infer {

struct Checkpoint {
  Path path;    // as the user gave it
  Path folder;  // the one the weights are in
  std::unique_ptr<checkpoint::TensorSource> source;
  nn::olmo3::Config config;  // vocab_multiple 1: padding rows are left on the disk
  // Tokens that end a text: of generation_config.json, else of config.json. May be empty.
  std::vector<int64_t> eos_token_ids;
};

// Opens and checks names and shapes of all weights, reading none. Errors: kNotFound,
// kInvalidArgument for a configuration that is not an OLMo 3, kDataLoss with a list of tensors
// missing, left over or of another shape. Optimizer moments beside the weights are left alone.
Result<Checkpoint> OpenCheckpoint(const Path& path);
// The same from an open source; `path` stands for it in messages.
Result<Checkpoint> OpenCheckpoint(std::unique_ptr<checkpoint::TensorSource> source,
                                  const Path& path);

// A tensor to have on devices and the checkpoint's tensors it is made of: one, or one per element
// of the first axis.
struct WeightTarget {
  std::string name;
  TensorType type;
  Sharding sharding;
  std::vector<std::string> sources;
  bool stacked = false;
};

// One tensor per tensor of the checkpoint (nn/olmo3/decode.h), or stacked by groups of layers
// (nn/olmo3/parameters.h). Matrices in `dtype`, norms in f32.
std::vector<WeightTarget> UnstackedTargets(const nn::olmo3::Config& config, DType dtype,
                                           const Mesh& mesh);
std::vector<WeightTarget> StackedTargets(const nn::olmo3::Config& config, DType dtype,
                                         const Mesh& mesh);

// Reads, converts and uploads tensor by tensor; host memory holds one device's block of one tensor
// and a few MiB. kOutOfRange if a finite weight is beyond the range of the target's dtype.
Result<std::vector<pjrt::ShardedArray>> LoadWeights(pjrt::Client& client,
                                                    const Checkpoint& checkpoint,
                                                    std::span<const WeightTarget> targets,
                                                    const Mesh& mesh);

// Compiles with our kernels where the platform has them.
Result<std::unique_ptr<pjrt::Executable>> Compile(pjrt::Client& client, const graph::Graph& graph,
                                                  pjrt::CompilationCache* cache);

}  // namespace ulmus::infer
