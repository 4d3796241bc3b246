#include "graph/ops/op.h"

#include <algorithm>
#include <cmath>

namespace ulmus::graph {

const OpDef kMax = BinaryOp(
    "stablehlo.maximum",
    [](Value x, Value y, Value, Value ct) {
      // Equal elements share the cotangent.
      const Value half = Select(Compare(Cmp::kEq, x, y), SplatLike(x, 0.5), ZerosLike(x));
      const Value one = SplatLike(x, 1);
      const Value to_x = Select(Compare(Cmp::kGt, x, y), one, half);
      return std::pair{Mul(ct, to_x), Mul(ct, Sub(one, to_x))};
    },
    [](double x, double y) {
      return std::isnan(x) || std::isnan(y) ? std::nan("") : std::max(x, y);
    });

Value Max(Value x, Value y, Loc loc) { return MakeBinary(kMax, x, y, loc); }

}  // namespace ulmus::graph
