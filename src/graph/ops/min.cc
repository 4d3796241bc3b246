#include "graph/ops/op.h"

#include <algorithm>
#include <cmath>

namespace ulmus::graph {

const OpDef kMin = BinaryOp(
    "stablehlo.minimum",
    [](Value x, Value y, Value, Value ct) {
      // Equal elements share the cotangent.
      const Value half = Select(Compare(Cmp::kEq, x, y), SplatLike(x, 0.5), ZerosLike(x));
      const Value one = SplatLike(x, 1);
      const Value to_x = Select(Compare(Cmp::kLt, x, y), one, half);
      return std::pair{Mul(ct, to_x), Mul(ct, Sub(one, to_x))};
    },
    [](double x, double y) {
      return std::isnan(x) || std::isnan(y) ? std::nan("") : std::min(x, y);
    });

Value Min(Value x, Value y, Loc loc) { return MakeBinary(kMin, x, y, loc); }

}  // namespace ulmus::graph
