#include "graph/ops/op.h"

#include <algorithm>
#include <cmath>

#include "graph/ops/reduce.h"

namespace ulmus::graph {

const OpDef kReduceMax =
    ReduceOp({"stablehlo.maximum",
              [](double a, double b) {
                return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
              }},
             ExtremumVjp);

Value ReduceMax(Value x, Dims axes, Loc loc) {
  return MakeReduce(kReduceMax, x, std::move(axes), LowestValue(x.dtype()), loc);
}

}  // namespace ulmus::graph
