#include "graph/ops/op.h"

#include "graph/ops/dynamic_slice.h"

namespace ulmus::graph {

const OpDef kDynamicUpdateSlice = {
    .name = "stablehlo.dynamic_update_slice",
    .vjp =
        [](const VjpContext& c) {
          const Values starts(c.node.operands.begin() + 2, c.node.operands.end());
          Values cts(c.node.operands.size());
          cts[0] = DynamicUpdateSlice(c.cotangent(), ZerosLike(c.operand(1)), starts);
          cts[1] = DynamicSlice(c.cotangent(), starts, c.operand(1).shape().dims());
          return cts;
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.dynamic_update_slice {} : ({}) -> {}", p.Names(n.operands),
                 p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = *in[0];
          const Shape& block = in[1]->type.shape;
          const Dims starts = ClampedStarts(in.subspan(2), out.type.shape, block);
          ForEachIndex(block, [&](const Dims& index, int64_t flat) {
            Dims target = index;
            for (size_t d = 0; d < target.size(); ++d) target[d] += starts[d];
            out.data[static_cast<size_t>(FlatIndex(out.type.shape, target))] =
                in[1]->data[static_cast<size_t>(flat)];
          });
          (void)n;
          return std::vector{std::move(out)};
        },
};

Value DynamicUpdateSlice(Value x, Value update, Values starts, Loc loc) {
  CheckStarts(kDynamicUpdateSlice, x, starts, update.shape(), loc);
  CHECK_AT(loc, x.dtype() == update.dtype(), "{}: {} updated with {}", kDynamicUpdateSlice.name,
           x.type().ToString(), update.type().ToString());
  Values operands = {x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return MakeValue(kDynamicUpdateSlice, std::move(operands), x.type(), loc);
}

}  // namespace ulmus::graph
