#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kOr = BinaryOp("stablehlo.or", nullptr, [](double a, double b) {
  const auto x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
  return static_cast<double>(x | y);
});

Value Or(Value x, Value y, Loc loc) {
  CHECK_AT(loc, !IsFloat(x.dtype()), "{} of {}: wants bool or integers", kOr.name,
           x.type().ToString());
  return MakeBinary(kOr, x, y, loc);
}

}  // namespace ulmus::graph
