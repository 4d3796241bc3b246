// Named rematerialisation policies: what of a layer is kept for the backward pass.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ulmus::nn::olmo3 {

// Names under which the forward pass marks values (graph::CheckpointName), per layer. Sizes are
// elements per token.
inline constexpr const char* kQuery = "query";                 // N*H, after norm and rotation
inline constexpr const char* kKey = "key";                     // K*H, likewise
inline constexpr const char* kValue = "value";                 // K*H
inline constexpr const char* kAttention = "attention_out";     // N*H, marked by nn/attention.h
inline constexpr const char* kAttentionLse = "attention_lse";  // N, f32, likewise
inline constexpr const char* kOutProj = "out_proj";            // D, before its norm
inline constexpr const char* kMlpGate = "mlp_gate";            // F, before silu
inline constexpr const char* kMlpUp = "mlp_up";                // F
inline constexpr const char* kMlpOut = "mlp_out";              // D, before its norm

struct RematChoice {
  std::string_view name;
  std::string_view help;
  bool layer = true;   // each layer is run again, from its input
  bool group = false;  // each group of layers too: only its input outlives the forward pass
  std::vector<std::string> save;  // marked values that are kept
};
const std::vector<RematChoice>& RematChoices();
// kInvalidArgument lists the names.
Result<const RematChoice*> RematByName(std::string_view name);
std::vector<std::string> RematNames();

}  // namespace ulmus::nn::olmo3
