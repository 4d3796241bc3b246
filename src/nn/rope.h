// Rotary position embedding: frequencies, YaRN's scaling of them, and the half rotation.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "graph/value.h"

namespace ulmus::nn {

// Where YaRN's upper dimension is clamped, and how an empty range is widened. They agree unless the
// original context is tiny or the head narrow.
enum class YarnClamp {
  kHalf,  // high <= h/2 - 1; the range is at least 1e-3 wide: OLMo-core YaRNRoPEScalingConfig
  kFull,  // high <= h - 1; 1e-3 is added only where low == high: HF _compute_yarn_parameters
};

// YaRN: Peng et al. 2023. Defaults are OLMo 3's long-context stage.
struct Yarn {
  double factor = 8;                // new context / original context
  int64_t original_context = 8192;  // tokens
  double beta_fast = 32, beta_slow = 1;
  double attention_factor = 0;  // multiplies cos and sin; 0: 0.1 ln(factor) + 1
  YarnClamp clamp = YarnClamp::kHalf;

  double AttentionFactor() const;
  friend bool operator==(const Yarn&, const Yarn&) = default;
};

// Between which frequencies YaRN passes from "kept" (below low) to "divided by factor" (above
// high).
struct YarnRange {
  double low = 0, high = 0;
};
YarnRange ComputeYarnRange(const Yarn& yarn, double theta, int64_t head_dim);

// What one kind of layer rotates by.
struct RopeFrequencies {
  std::vector<float> inverse;  // [H/2], radians per position
  double scale = 1;            // multiplies cos and sin
  bool yarn = false;
};
// inverse[j] = theta^(-2j/H), scaled by YaRN if given. head_dim even (CHECK). Computed in double,
// rounded to f32 once.
RopeFrequencies ComputeRopeFrequencies(double theta, int64_t head_dim,
                                       const std::optional<Yarn>& yarn = {});

// cos and sin of every position, times the scale: f32 [..., H/2] for positions i32 [...].
struct RopeTable {
  graph::Value cos, sin;
  bool yarn = false;
};
RopeTable MakeRopeTable(graph::Value positions, const RopeFrequencies& frequencies,
                        Loc loc = Loc::current());

enum class RotationPrecision {
  kF32,         // angles, cos, sin and the products in f32, rounded once: HF, OLMo-core
  kActivation,  // cos and sin rounded to x's dtype, products in it: MaxText RotaryEmbedding
};

// x [B,T,N,H] rotated by the table of positions [B,T], or [1,T] for all rows: elements j and j +
// H/2 are a pair (not interleaved).
//   out[j] = x[j] cos - x[j+H/2] sin     out[j+H/2] = x[j+H/2] cos + x[j] sin
// With a YaRN table the rotation is always f32: MaxText's YaRN path is too.
graph::Value ApplyRope(graph::Value x, const RopeTable& table,
                       RotationPrecision precision = RotationPrecision::kF32,
                       Loc loc = Loc::current());

}  // namespace ulmus::nn
