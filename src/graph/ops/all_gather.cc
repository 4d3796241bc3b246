#include "graph/ops/op.h"

#include "graph/ops/collective.h"

namespace ulmus::graph {

const OpDef kAllGather = {
    .name = "stablehlo.all_gather",
    .vjp =
        [](const VjpContext& c) {
          const auto& a = c.node.attrs_as<CollectiveAttrs>();
          return Values{ReduceScatter(c.cotangent(), a.axes, a.dim)};
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n,
                 "\"stablehlo.all_gather\"({}) <{{all_gather_dim = {} : i64, {}, "
                 "use_global_device_ids}}> : ({}) -> {}",
                 p.Name(n.operands[0]), n.attrs_as<CollectiveAttrs>().dim, ChannelText(p, n),
                 p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate_all =
        [](Interpreter& interpreter, const Node& n) {
          EvaluateGroups(interpreter, n, [&](const auto& members) {
            std::vector<RefTensor> parts;
            for (const RefTensor* m : members) parts.push_back(*m);
            return std::vector<RefTensor>(members.size(),
                                          Joined(parts, n.attrs_as<CollectiveAttrs>().dim));
          });
        },
};

Value AllGather(Value x, std::vector<std::string> axes, int64_t dim, Loc loc) {
  const int64_t size = GroupSize(x.graph().mesh(), axes);
  if (size == 1) return x;
  CheckManual(kAllGather.name, x.graph(), axes, loc);
  auto attrs = std::make_shared<CollectiveAttrs>();
  attrs->dim = NormalizeAxis(kAllGather, dim, x.rank(), loc);
  attrs->axes = std::move(axes);
  Dims dims = x.shape().dims();
  dims[static_cast<size_t>(attrs->dim)] *= size;
  return MakeValue(kAllGather, {x}, {x.dtype(), Shape(dims)}, loc, attrs);
}

}  // namespace ulmus::graph
