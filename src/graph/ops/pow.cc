#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kPow = BinaryOp(
    "stablehlo.power",
    [](Value x, Value y, Value z, Value ct) {
      const Value dx = Mul(y, Pow(x, Sub(y, SplatLike(y, 1))));
      return std::pair{Mul(ct, dx), Mul(ct, Mul(z, Log(x)))};
    },
    [](double x, double y) { return std::pow(x, y); });

Value Pow(Value x, Value y, Loc loc) { return MakeBinary(kPow, x, y, loc); }

}  // namespace ulmus::graph
