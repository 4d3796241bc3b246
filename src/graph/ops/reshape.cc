#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kReshape = {
    .name = "stablehlo.reshape",
    .vjp = [](const VjpContext& c) { return Values{Reshape(c.cotangent(), c.operand(0).shape())}; },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.reshape {} : ({}) -> {}", p.Name(n.operands[0]),
                 p.Type(n.operands[0]), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          return std::vector{RefTensor{n.results[0], in[0]->data}};
        },
    .cheap = true,
};

Value Reshape(Value x, Shape shape, Loc loc) {
  CHECK_AT(loc, x.shape().num_elements() == shape.num_elements(),
           "{}: {} has {} elements, {} has {}", kReshape.name, x.shape().ToString(),
           x.shape().num_elements(), shape.ToString(), shape.num_elements());
  if (x.shape() == shape) return x;
  return MakeValue(kReshape, {x}, {x.dtype(), std::move(shape)}, loc);
}

}  // namespace ulmus::graph
