#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kRoundNearestEven = UnaryOp(
    "stablehlo.round_nearest_even", [](Value, Value, Value) { return Value(); },
    [](double x) { return std::nearbyint(x); });

Value RoundNearestEven(Value x, Loc loc) { return MakeUnary(kRoundNearestEven, x, loc); }

}  // namespace ulmus::graph
