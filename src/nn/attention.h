// Causal attention over a full or sliding window, with grouped queries and document masks, without
// a [T,T] matrix in either direction.
#pragma once

#include <optional>

#include "graph/value.h"
#include "tensor/mesh.h"  // Sharding

namespace ulmus::nn {

struct AttentionOptions {
  // Query i reaches key j iff 0 <= i - j < window: the window counts the query itself, so 1 is
  // "only itself" (HF sliding_window; flash-attention's left distance is window - 1). 0: all before
  // it.
  int64_t window = 0;
  double scale = 0;               // multiplies the scores; 0: 1/sqrt(H)
  graph::Value segment_ids = {};  // [B,T] i32: only tokens of equal id reach each other
  int64_t block = 0;              // queries and keys per block; 0: chosen from T and the window
  // How q lies on the mesh: batch, sequence and heads may be cut, H may not; k, v and the result
  // lie the same way, so K must divide as well. Along the sequence's axes keys and values are
  // gathered, or fetched from the neighbours that the window reaches. Without it, on a mesh of
  // several devices, partitioning is left to the compiler. Not inside a Manual region: there q is
  // one device's block already.
  std::optional<Sharding> sharding = {};
};

// softmax(q k^T * scale + mask) v; scores and softmax in f32, probabilities rounded to q's dtype
// for the product with v, result in q's dtype.
//   q [B,T,N,H]   k, v [B,T,K,H], N a multiple of K: query head n reads key head n / (N/K)
//   all f32 or all bf16   -> [B,T,N,H]
// Blocks outside the causal or window band are not computed. Source: Dao et al. 2022 (algorithms 1
// and 4), Milakov & Gimelshein 2018 for the running softmax.
// The backward pass keeps the result and the log-sum-exp of the scores. They carry the names
// "attention_out" and "attention_lse": a remat policy that saves both runs no attention twice.
graph::Value Attention(graph::Value q, graph::Value k, graph::Value v,
                       AttentionOptions options = {}, Loc loc = Loc::current());

// kInvalidArgument, with the equation that does not hold, if tensors of these shapes cannot lie on
// the mesh as `sharding` says. Attention itself aborts with the same words.
Status ValidateAttentionSharding(const Mesh& mesh, const Shape& q, const Shape& k,
                                 const Sharding& sharding);

}  // namespace ulmus::nn
