#include "graph/ops/op.h"

#include "graph/ops/reduce.h"

namespace ulmus::graph {

const OpDef kReduceOr = ReduceOp(
    {"stablehlo.or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }}, nullptr);

Value ReduceOr(Value x, Dims axes, Loc loc) {
  CHECK_AT(loc, x.dtype() == DType::kBool, "reduce_or of {}: wants bool", x.type().ToString());
  return MakeReduce(kReduceOr, x, std::move(axes), 0, loc);
}

}  // namespace ulmus::graph
