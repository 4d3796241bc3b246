#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kShardingConstraint = {
    .name = "sdy.sharding_constraint",
    // The cotangent lies as the value does.
    .vjp =
        [](const VjpContext& c) {
          return Values{ShardingConstraint(c.cotangent(), *c.node.sharding)};
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "sdy.sharding_constraint {} {} : {}", p.Name(n.operands[0]),
                 ShardyText(*n.sharding), MlirType(n.results[0]));
        },
    .evaluate = [](const Node&,
                   std::span<const RefTensor* const> in) { return std::vector{*in[0]}; },
};

Value ShardingConstraint(Value x, Sharding sharding, Loc loc) {
  const Status valid = ValidateSharding(x.graph().mesh(), x.shape(), sharding);
  CHECK_AT(loc, valid.ok(), "{}: {}", kShardingConstraint.name, valid.message());
  if (x.graph().mesh().num_devices() == 1) return x;
  const Value out = MakeValue(kShardingConstraint, {x}, x.type(), loc);
  out.node()->sharding = std::move(sharding);
  return out;
}

Value ShardAs(Value x, std::vector<std::string> logical_axes, Loc loc) {
  CHECK_AT(loc, static_cast<int64_t>(logical_axes.size()) == x.rank(), "{} logical axes for {}",
           logical_axes.size(), x.type().ToString());
  return ShardingConstraint(x, x.graph().ShardingFor(logical_axes, loc), loc);
}

}  // namespace ulmus::graph
