#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kOptimizationBarrier = {
    .name = "stablehlo.optimization_barrier",
    .vjp = [](const VjpContext& c) { return c.cotangents; },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.optimization_barrier {} : {}", p.Names(n.operands),
                 p.Types(n.operands));
        },
    .evaluate =
        [](const Node&, std::span<const RefTensor* const> in) {
          std::vector<RefTensor> out;
          for (const RefTensor* t : in) out.push_back(*t);
          return out;
        },
};

Values OptimizationBarrier(Values xs, Loc loc) {
  if (xs.empty()) return xs;
  std::vector<TensorType> types;
  for (Value x : xs) types.push_back(x.type());
  return MakeValues(kOptimizationBarrier, std::move(xs), std::move(types), loc);
}

}  // namespace ulmus::graph
