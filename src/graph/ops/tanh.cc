#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kTanh = UnaryOp(
    "stablehlo.tanh",
    [](Value, Value y, Value ct) { return Mul(ct, Sub(SplatLike(y, 1), Mul(y, y))); },
    [](double x) { return std::tanh(x); });

Value Tanh(Value x, Loc loc) { return MakeUnary(kTanh, x, loc); }

}  // namespace ulmus::graph
