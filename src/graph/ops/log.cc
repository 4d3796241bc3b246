#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kLog = UnaryOp(
    "stablehlo.log", [](Value x, Value, Value ct) { return Div(ct, x); },
    [](double x) { return std::log(x); });

Value Log(Value x, Loc loc) { return MakeUnary(kLog, x, loc); }

}  // namespace ulmus::graph
