#include "graph/ops/op.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/reduce.h"

namespace ulmus::graph {

const OpDef kReduceMin =
    ReduceOp({"stablehlo.minimum",
              [](double a, double b) {
                return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
              }},
             ExtremumVjp);

Value ReduceMin(Value x, Dims axes, Loc loc) {
  return MakeReduce(kReduceMin, x, std::move(axes), HighestValue(x.dtype()), loc);
}

}  // namespace ulmus::graph
