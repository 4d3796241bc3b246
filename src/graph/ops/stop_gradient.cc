#include "graph/ops/op.h"

namespace ulmus::graph {

// An identity that the backward pass does not cross; leaves no trace in the text.
const OpDef kStopGradient = {
    .name = "stop_gradient",
    .vjp = [](const VjpContext&) { return Values{Value()}; },
    .print = [](Printer& p,
                const Node& n) { p.BindResults(n, {std::string(p.Name(n.operands[0]))}); },
    .evaluate = [](const Node&,
                   std::span<const RefTensor* const> in) { return std::vector{*in[0]}; },
    .cheap = true,
};

Value StopGradient(Value x, Loc loc) { return MakeValue(kStopGradient, {x}, x.type(), loc); }

}  // namespace ulmus::graph
