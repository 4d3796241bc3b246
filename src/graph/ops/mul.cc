#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kMul = BinaryOp(
    "stablehlo.multiply",
    [](Value x, Value y, Value, Value ct) { return std::pair{Mul(ct, y), Mul(ct, x)}; },
    [](double x, double y) { return x * y; });

Value Mul(Value x, Value y, Loc loc) { return MakeBinary(kMul, x, y, loc); }

}  // namespace ulmus::graph
