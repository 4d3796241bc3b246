#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kAbs = UnaryOp(
    "stablehlo.abs", [](Value x, Value, Value ct) { return Mul(ct, Sign(x)); },
    [](double x) { return std::fabs(x); });

Value Abs(Value x, Loc loc) { return MakeUnary(kAbs, x, loc, true); }

}  // namespace ulmus::graph
