#include "graph/ops/op.h"

#include "graph/ops/checkpoint_name.h"

namespace ulmus::graph {

// An identity with a name that rematerialisation policies refer to; leaves no trace in the text. A
// second operand, if any, is the same value kept from the forward pass: it is what is read, the
// gradient goes to the first.
const OpDef kCheckpointName = {
    .name = "checkpoint_name",
    .vjp =
        [](const VjpContext& c) {
          return c.node.operands.size() == 1 ? Values{c.cotangent()}
                                             : Values{c.cotangent(), Value()};
        },
    .print = [](Printer& p,
                const Node& n) { p.BindResults(n, {std::string(p.Name(n.operands.back()))}); },
    .evaluate = [](const Node&,
                   std::span<const RefTensor* const> in) { return std::vector{*in.back()}; },
    .cheap = true,
};

Value CheckpointName(Value x, std::string name, Loc loc) {
  auto attrs = std::make_shared<CheckpointNameAttrs>();
  attrs->name = std::move(name);
  return MakeValue(kCheckpointName, {x}, x.type(), loc, attrs);
}

}  // namespace ulmus::graph
