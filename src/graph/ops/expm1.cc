#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kExpm1 = UnaryOp(
    "stablehlo.exponential_minus_one",
    [](Value, Value y, Value ct) { return Mul(ct, Add(y, SplatLike(y, 1))); },
    [](double x) { return std::expm1(x); });

Value Expm1(Value x, Loc loc) { return MakeUnary(kExpm1, x, loc); }

}  // namespace ulmus::graph
