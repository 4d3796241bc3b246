// Root-mean-square normalisation over the last axis, as OLMo 3 applies it.
#pragma once

#include <optional>

#include "graph/value.h"
#include "tensor/mesh.h"  // Sharding

namespace ulmus::nn {

// Where y is rounded when x is bf16; in f32 both are the same.
enum class NormRounding {
  kOnce,   // statistics and product with the scale in f32, rounded to x's dtype at the end: HF
           // Olmo3RMSNorm, OLMo-core RMSNorm
  kTwice,  // normalised x and scale are rounded to x's dtype each, and so is their product: MaxText
           // RMSNorm
};

struct RmsNormOptions {
  NormRounding rounding = NormRounding::kOnce;
  // How x lies on the mesh. The rows may be cut along any leading axis, the width never. With it
  // the platform's kernel runs on each device's own rows (inside graph::Manual over the axes named
  // here). Without it, on a mesh of several devices, the norm is left to the compiler, which
  // partitions plain operations but would run a kernel whole on every device. Not inside a Manual
  // region: there x is one device's block already.
  std::optional<Sharding> sharding = {};
};

// y[...,d] = x[...,d] / sqrt(mean_d(x^2) + eps) * scale[d], computed in f32, returned in x's dtype.
//   x [...,D] f32 or bf16   scale [D] f32   eps ~1e-6, unitless   -> [...,D]
// Differs from LayerNorm: no mean, no bias. Source: Zhang & Sennrich 2019, eq. 4; HF Olmo3RMSNorm.
// The gradient of x is rounded once, that of scale stays f32. kernels/rms_norm.h computes both on
// CPUs where the program is printed with use_kernels; kTwice is always plain operations.
graph::Value RmsNorm(graph::Value x, graph::Value scale, float eps, RmsNormOptions options = {},
                     Loc loc = Loc::current());

}  // namespace ulmus::nn
