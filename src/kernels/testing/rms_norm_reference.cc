#include "kernels/testing/rms_norm_reference.h"

#include <cmath>
#include <cstddef>

namespace ulmus::kernels {
namespace {

double InverseRms(std::span<const double> row, double eps) {
  double squares = 0;
  for (const double v : row) squares += v * v;
  return 1 / std::sqrt(squares / static_cast<double>(row.size()) + eps);
}

}  // namespace

std::vector<double> RmsNormReference(std::span<const double> x, std::span<const double> scale,
                                     double eps) {
  const size_t width = scale.size();
  std::vector<double> y(x.size());
  for (size_t first = 0; first < x.size(); first += width) {
    const double r = InverseRms(x.subspan(first, width), eps);
    for (size_t d = 0; d < width; ++d) y[first + d] = x[first + d] * r * scale[d];
  }
  return y;
}

RmsNormGradients RmsNormBackwardReference(std::span<const double> x, std::span<const double> scale,
                                          std::span<const double> ct, double eps) {
  const size_t width = scale.size();
  RmsNormGradients gradients{std::vector<double>(x.size()), std::vector<double>(width)};
  for (size_t first = 0; first < x.size(); first += width) {
    const double r = InverseRms(x.subspan(first, width), eps);
    double mean_gn = 0;
    for (size_t d = 0; d < width; ++d)
      mean_gn += ct[first + d] * scale[d] * x[first + d] * r / static_cast<double>(width);
    for (size_t d = 0; d < width; ++d) {
      const double n = x[first + d] * r;
      gradients.dx[first + d] = r * (ct[first + d] * scale[d] - n * mean_gn);
      gradients.dscale[d] += ct[first + d] * n;
    }
  }
  return gradients;
}

}  // namespace ulmus::kernels
