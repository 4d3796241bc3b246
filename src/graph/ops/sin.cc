#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kSin = UnaryOp(
    "stablehlo.sine", [](Value x, Value, Value ct) { return Mul(ct, Cos(x)); },
    [](double x) { return std::sin(x); });

Value Sin(Value x, Loc loc) { return MakeUnary(kSin, x, loc); }

}  // namespace ulmus::graph
