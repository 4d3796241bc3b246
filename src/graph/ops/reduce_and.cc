#include "graph/ops/op.h"

#include "graph/ops/reduce.h"

namespace ulmus::graph {

const OpDef kReduceAnd = ReduceOp(
    {"stablehlo.and", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }}, nullptr);

Value ReduceAnd(Value x, Dims axes, Loc loc) {
  CHECK_AT(loc, x.dtype() == DType::kBool, "reduce_and of {}: wants bool", x.type().ToString());
  return MakeReduce(kReduceAnd, x, std::move(axes), 1, loc);
}

}  // namespace ulmus::graph
