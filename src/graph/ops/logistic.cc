#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kLogistic = UnaryOp(
    "stablehlo.logistic",
    [](Value, Value y, Value ct) { return Mul(ct, Mul(y, Sub(SplatLike(y, 1), y))); },
    [](double x) { return 1 / (1 + std::exp(-x)); });

Value Logistic(Value x, Loc loc) { return MakeUnary(kLogistic, x, loc); }

}  // namespace ulmus::graph
