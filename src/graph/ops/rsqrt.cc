#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kRsqrt = UnaryOp(
    "stablehlo.rsqrt",
    [](Value x, Value y, Value ct) { return Mul(ct, Mul(SplatLike(y, -0.5), Div(y, x))); },
    [](double x) { return 1 / std::sqrt(x); });

Value Rsqrt(Value x, Loc loc) { return MakeUnary(kRsqrt, x, loc); }

}  // namespace ulmus::graph
