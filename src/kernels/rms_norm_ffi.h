// The RMSNorm kernels as custom calls.
#pragma once

#include "tensor/program.h"  // CustomCallHandler

namespace ulmus::kernels {

// ulmus_rms_norm(x, scale) {eps: f32} -> y
//   x, y [..., width] f32 or bf16   scale f32[width]
CustomCallHandler RmsNormCall();
// ulmus_rms_norm_backward(x, scale, ct) {eps: f32} -> dx, dscale
//   x, ct, dx [..., width] f32 or bf16, all the same   scale, dscale f32[width]
CustomCallHandler RmsNormBackwardCall();

}  // namespace ulmus::kernels
