#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kSub = BinaryOp(
    "stablehlo.subtract", [](Value, Value, Value, Value ct) { return std::pair{ct, Neg(ct)}; },
    [](double x, double y) { return x - y; });

Value Sub(Value x, Value y, Loc loc) { return MakeBinary(kSub, x, y, loc); }

}  // namespace ulmus::graph
