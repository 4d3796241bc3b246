#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kDiv = BinaryOp(
    "stablehlo.divide",
    [](Value x, Value y, Value z, Value ct) {
      (void)x;
      const Value dx = Div(ct, y);
      return std::pair{dx, Neg(Mul(dx, z))};
    },
    [](double x, double y) { return x / y; });

Value Div(Value x, Value y, Loc loc) { return MakeBinary(kDiv, x, y, loc); }

}  // namespace ulmus::graph
