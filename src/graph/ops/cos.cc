#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kCos = UnaryOp(
    "stablehlo.cosine", [](Value x, Value, Value ct) { return Neg(Mul(ct, Sin(x))); },
    [](double x) { return std::cos(x); });

Value Cos(Value x, Loc loc) { return MakeUnary(kCos, x, loc); }

}  // namespace ulmus::graph
