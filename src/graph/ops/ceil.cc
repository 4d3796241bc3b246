#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kCeil = UnaryOp(
    "stablehlo.ceil", [](Value, Value, Value) { return Value(); },
    [](double x) { return std::ceil(x); });

Value Ceil(Value x, Loc loc) { return MakeUnary(kCeil, x, loc); }

}  // namespace ulmus::graph
