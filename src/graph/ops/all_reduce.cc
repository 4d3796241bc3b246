#include "graph/ops/op.h"

#include "graph/ops/collective.h"

namespace ulmus::graph {

const OpDef kAllReduce = {
    .name = "stablehlo.all_reduce",
    // Every device's result depends on every operand, so the cotangents are summed too (see
    // manual.cc for the convention).
    .vjp =
        [](const VjpContext& c) {
          return Values{AllReduce(c.cotangent(), c.node.attrs_as<CollectiveAttrs>().axes)};
        },
    .print =
        [](Printer& p, const Node& n) {
          const std::string a = p.FreshName(), b = p.FreshName(), sum = p.FreshName(),
                            t = MlirType({n.results[0].dtype, {}});
          p.Emit(n,
                 "\"stablehlo.all_reduce\"({}) <{{{}, use_global_device_ids}}> ({{\n      ^bb0({}: "
                 "{}, {}: {}):\n        {} = stablehlo.add "
                 "{}, {} : {}\n        stablehlo.return {} : {}\n      }}) : ({}) -> {}",
                 p.Name(n.operands[0]), ChannelText(p, n), a, t, b, t, sum, a, b, t, sum, t,
                 p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate_all =
        [](Interpreter& interpreter, const Node& n) {
          EvaluateGroups(interpreter, n, [](const auto& members) {
            return std::vector<RefTensor>(members.size(), SumOf(members));
          });
        },
};

Value AllReduce(Value x, std::vector<std::string> axes, Loc loc) {
  if (GroupSize(x.graph().mesh(), axes) == 1) return x;
  CheckManual(kAllReduce.name, x.graph(), axes, loc);
  auto attrs = std::make_shared<CollectiveAttrs>();
  attrs->axes = std::move(axes);
  return MakeValue(kAllReduce, {x}, x.type(), loc, attrs);
}

}  // namespace ulmus::graph
