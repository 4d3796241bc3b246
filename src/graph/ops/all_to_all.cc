#include "graph/ops/op.h"

#include "graph/ops/collective.h"

namespace ulmus::graph {

const OpDef kAllToAll = {
    .name = "stablehlo.all_to_all",
    .vjp =
        [](const VjpContext& c) {
          const auto& a = c.node.attrs_as<CollectiveAttrs>();
          return Values{AllToAll(c.cotangent(), a.axes[0], a.concat_dim, a.dim)};
        },
    .print =
        [](Printer& p, const Node& n) {
          const auto& a = n.attrs_as<CollectiveAttrs>();
          p.Emit(n,
                 "\"stablehlo.all_to_all\"({}) <{{split_dimension = {} : i64, concat_dimension = "
                 "{} : i64, split_count = {} : i64, {}}}> : ({}) -> {}",
                 p.Name(n.operands[0]), a.dim, a.concat_dim, GroupSize(p.graph().mesh(), a.axes),
                 ChannelText(p, n), p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate_all =
        [](Interpreter& interpreter, const Node& n) {
          const auto& a = n.attrs_as<CollectiveAttrs>();
          EvaluateGroups(interpreter, n, [&](const auto& members) {
            const auto size = static_cast<int64_t>(members.size());
            std::vector<RefTensor> received;
            for (int64_t i = 0; i < size; ++i) {
              std::vector<RefTensor> parts;
              for (const RefTensor* m : members) parts.push_back(BlockOf(*m, a.dim, i, size));
              received.push_back(Joined(parts, a.concat_dim));
            }
            return received;
          });
        },
};

Value AllToAll(Value x, std::string axis, int64_t split_dim, int64_t concat_dim, Loc loc) {
  const int64_t size = x.graph().mesh().AxisSize(axis);
  if (size == 1) return x;
  CheckManual(kAllToAll.name, x.graph(), {axis}, loc);
  auto attrs = std::make_shared<CollectiveAttrs>();
  attrs->axes = {std::move(axis)};
  attrs->dim = NormalizeAxis(kAllToAll, split_dim, x.rank(), loc);
  attrs->concat_dim = NormalizeAxis(kAllToAll, concat_dim, x.rank(), loc);
  Dims dims = x.shape().dims();
  int64_t& split = dims[static_cast<size_t>(attrs->dim)];
  CHECK_AT(loc, split % size == 0, "{}: dimension {} of {}: {} % {} = {}", kAllToAll.name,
           attrs->dim, x.shape().ToString(), split, size, split % size);
  split /= size;
  dims[static_cast<size_t>(attrs->concat_dim)] *= size;
  return MakeValue(kAllToAll, {x}, {x.dtype(), Shape(dims)}, loc, attrs);
}

}  // namespace ulmus::graph
