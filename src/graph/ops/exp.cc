#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kExp = UnaryOp(
    "stablehlo.exponential", [](Value, Value y, Value ct) { return Mul(ct, y); },
    [](double x) { return std::exp(x); });

Value Exp(Value x, Loc loc) { return MakeUnary(kExp, x, loc); }

}  // namespace ulmus::graph
