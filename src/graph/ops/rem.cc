#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kRem = BinaryOp(
    "stablehlo.remainder",
    [](Value x, Value y, Value, Value ct) {
      // x - trunc(x / y) * y
      const Value q = Div(x, y);
      const Value truncated = Mul(Sign(q), Floor(Abs(q)));
      return std::pair{ct, Neg(Mul(ct, truncated))};
    },
    [](double x, double y) { return std::fmod(x, y); });

Value Rem(Value x, Value y, Loc loc) { return MakeBinary(kRem, x, y, loc); }

}  // namespace ulmus::graph
