#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kSign = UnaryOp(
    "stablehlo.sign", [](Value, Value, Value) { return Value(); },
    [](double x) { return x > 0   ? 1.0
                          : x < 0 ? -1.0
                                  : x; });

Value Sign(Value x, Loc loc) { return MakeUnary(kSign, x, loc, true); }

}  // namespace ulmus::graph
