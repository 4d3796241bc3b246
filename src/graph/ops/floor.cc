#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kFloor = UnaryOp(
    "stablehlo.floor", [](Value, Value, Value) { return Value(); },
    [](double x) { return std::floor(x); });

Value Floor(Value x, Loc loc) { return MakeUnary(kFloor, x, loc); }

}  // namespace ulmus::graph
