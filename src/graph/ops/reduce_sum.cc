#include "graph/ops/op.h"

#include "graph/ops/reduce.h"

namespace ulmus::graph {

const OpDef kReduceSum = ReduceOp({"stablehlo.add", [](double a, double b) { return a + b; }},
                                  [](const VjpContext& c, const Dims& axes) {
                                    return SpreadOver(c.cotangent(), c.operand(0), axes);
                                  });

Value ReduceSum(Value x, Dims axes, Loc loc) {
  return MakeReduce(kReduceSum, x, std::move(axes), 0, loc);
}

}  // namespace ulmus::graph
