// Root-mean-square normalisation over the last axis and its gradient, for CPUs. Plain entry points;
// programs reach them as the custom calls of kernels/rms_norm_ffi.h. The formula and its sources
// stand in nn/rms_norm.h.
#pragma once

#include <span>

#include "kernels/parallel.h"
#include "tensor/dtype.h"  // BF16

namespace ulmus::kernels {

// y[r,d] = x[r,d] / sqrt(mean_d(x[r,:]^2) + eps) * scale[d], in f32, rounded once.
//   x, y [rows, width] of any number of rows   scale [width]
// The result has the same bits for any number of threads, and on AVX2 as on AVX-512. `y` may be
// `x`.
void RmsNorm(Workers& workers, std::span<const float> x, std::span<const float> scale, float eps,
             std::span<float> y);
void RmsNorm(Workers& workers, std::span<const BF16> x, std::span<const float> scale, float eps,
             std::span<BF16> y);

// The gradient, from the cotangent `ct` of y. With n = x / sqrt(mean(x^2) + eps) and g = ct *
// scale:
//   dx = (g - n * mean_d(g * n)) / sqrt(mean(x^2) + eps), rounded once      dscale[d] = sum_r
//   ct[r,d] * n[r,d], f32
// The statistics are computed again from x: that costs less than keeping and reading them. The rows
// are summed in an order that depends on the shape alone. `dx` may be `x` or `ct`. Throws
// std::bad_alloc if there is no memory for partial sums.
void RmsNormBackward(Workers& workers, std::span<const float> x, std::span<const float> scale,
                     std::span<const float> ct, float eps, std::span<float> dx,
                     std::span<float> dscale);
void RmsNormBackward(Workers& workers, std::span<const BF16> x, std::span<const float> scale,
                     std::span<const BF16> ct, float eps, std::span<BF16> dx,
                     std::span<float> dscale);

}  // namespace ulmus::kernels
