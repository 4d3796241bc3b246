#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kLog1p = UnaryOp(
    "stablehlo.log_plus_one",
    [](Value x, Value, Value ct) { return Div(ct, Add(x, SplatLike(x, 1))); },
    [](double x) { return std::log1p(x); });

Value Log1p(Value x, Loc loc) { return MakeUnary(kLog1p, x, loc); }

}  // namespace ulmus::graph
