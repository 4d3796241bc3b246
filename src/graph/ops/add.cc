#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kAdd = BinaryOp(
    "stablehlo.add", [](Value, Value, Value, Value ct) { return std::pair{ct, ct}; },
    [](double x, double y) { return x + y; });

Value Add(Value x, Value y, Loc loc) { return MakeBinary(kAdd, x, y, loc); }

}  // namespace ulmus::graph
