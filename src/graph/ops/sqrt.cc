#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kSqrt = UnaryOp(
    "stablehlo.sqrt", [](Value, Value y, Value ct) { return Div(Mul(ct, SplatLike(y, 0.5)), y); },
    [](double x) { return std::sqrt(x); });

Value Sqrt(Value x, Loc loc) { return MakeUnary(kSqrt, x, loc); }

}  // namespace ulmus::graph
