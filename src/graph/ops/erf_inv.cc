#include "graph/ops/op.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace ulmus::graph {

namespace {

// Newton's method on erf from the logarithmic starting point; exact to rounding within a few steps.
double InverseErf(double y) {
  if (std::fabs(y) >= 1) return y * std::numeric_limits<double>::infinity();
  const double log_term = std::log1p(-y * y);
  const double a = 2 / (std::numbers::pi * 0.147) + log_term / 2;  // Winitzki 2008
  double x = std::copysign(std::sqrt(std::sqrt(a * a - log_term / 0.147) - a), y);
  for (int i = 0; i < 6; ++i)
    x -= (std::erf(x) - y) * std::sqrt(std::numbers::pi) / 2 * std::exp(x * x);
  return x;
}

}  // namespace

const OpDef kErfInv = UnaryOp(
    "chlo.erf_inv",
    [](Value, Value y, Value ct) {
      return Mul(ct, Mul(SplatLike(y, std::sqrt(std::numbers::pi) / 2), Exp(Mul(y, y))));
    },
    InverseErf);

Value ErfInv(Value x, Loc loc) { return MakeUnary(kErfInv, x, loc); }

}  // namespace ulmus::graph
