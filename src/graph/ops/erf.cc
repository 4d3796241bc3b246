#include "graph/ops/op.h"

#include <cmath>
#include <numbers>

namespace ulmus::graph {

const OpDef kErf = UnaryOp(
    "chlo.erf",
    [](Value x, Value, Value ct) {
      return Mul(ct, Mul(SplatLike(x, 2 / std::sqrt(std::numbers::pi)), Exp(Neg(Mul(x, x)))));
    },
    [](double x) { return std::erf(x); });

Value Erf(Value x, Loc loc) { return MakeUnary(kErf, x, loc); }

}  // namespace ulmus::graph
