// The naive twin of kernels/rms_norm.h: plain loops in double, nothing rounded. For tests and
// benchmarks.
#pragma once

#include <span>
#include <vector>

namespace ulmus::kernels {

// y[r,d] = x[r,d] / sqrt(mean_d(x[r,:]^2) + eps) * scale[d]; rows = x.size() / scale.size().
std::vector<double> RmsNormReference(std::span<const double> x, std::span<const double> scale,
                                     double eps);

struct RmsNormGradients {
  std::vector<double> dx, dscale;
};
RmsNormGradients RmsNormBackwardReference(std::span<const double> x, std::span<const double> scale,
                                          std::span<const double> ct, double eps);

}  // namespace ulmus::kernels
