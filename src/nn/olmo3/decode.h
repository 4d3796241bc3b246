// Running the model token by token: a program that appends tokens to sequences whose keys and
// values are cached. With many tokens per call it reads prompts (prefill), with one it generates
// (decode). The pieces are those of the forward pass (nn/olmo3/model.h); only attention differs.
// Layers are unrolled and take the tensors of Hugging Face one by one: every weight is read once
// per token, and a slice of a stack would be copied first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/value.h"
#include "nn/olmo3/config.h"
#include "nn/olmo3/parameters.h"
#include "tensor/mesh.h"

namespace ulmus::nn::olmo3 {

struct DecodeTensor {
  std::string name;
  TensorType type;
  std::vector<std::string> axes;  // logical
};

// The weights, in the order of HfTensors(): matrices in `dtype`, norms in f32; the vocabulary is
// not padded.
std::vector<DecodeTensor> DecodeWeights(const Config& config, DType dtype);

// Keys and values of every layer, k then v: [B,K,S,H] in `dtype`. Full-attention layers have S =
// max_length rounded up by one chunk, sliding layers a ring of S = window entries (or what
// max_length needs, if that is less): position p lies in entry p % S.
//   chunk: the largest that any program using the cache has.
std::vector<DecodeTensor> DecodeCache(const Config& config, DType dtype, int64_t batch,
                                      int64_t max_length, int64_t chunk);

struct DecodeOptions {
  int64_t batch = 1;
  int64_t chunk = 1;       // C, tokens per sequence and call
  int64_t max_chunk = 1;   // of all programs that share the cache
  int64_t max_length = 0;  // of a sequence, prompt and continuation
  DType dtype = DType::kF32;
  bool all_logits = false;  // logits of every token of the chunk, not of the last one only
  // Axes as in DefaultRules(). Sequences are not cut; neither is the batch where it does not
  // divide.
  Mesh mesh = {};
};

// Arguments: weights, cache, and
//   tokens i32[B,C]
//   lengths i32[B]   tokens already in the cache; lengths + counts <= max_length
//   counts i32[B]    how many of the C are to be appended, 0 to C; the others are padding
// Results: "logits" f32 [B,V] of each row's last appended token (arbitrary where counts is 0), or
// f32 [B,C,V]; then the cache, in place of the one that came in (donated).
std::unique_ptr<graph::Graph> DecodeGraph(const Config& config, const DecodeOptions& options);

// Where the weights lie for a mesh, in the order of DecodeWeights().
std::vector<Sharding> DecodeWeightShardings(const Config& config, const Mesh& mesh);
// The same of the cache.
std::vector<Sharding> DecodeCacheShardings(const Config& config, const Mesh& mesh, int64_t batch);

}  // namespace ulmus::nn::olmo3
