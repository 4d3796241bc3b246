#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kNeg = UnaryOp(
    "stablehlo.negate", [](Value, Value, Value ct) { return Neg(ct); },
    [](double x) { return -x; });

Value Neg(Value x, Loc loc) { return MakeUnary(kNeg, x, loc, true); }

}  // namespace ulmus::graph
