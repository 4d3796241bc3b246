#include "graph/ops/op.h"

#include "graph/ops/collective.h"

namespace ulmus::graph {

const OpDef kCollectivePermute = {
    .name = "stablehlo.collective_permute",
    .vjp =
        [](const VjpContext& c) {
          const auto& a = c.node.attrs_as<CollectiveAttrs>();
          return Values{CollectivePermute(c.cotangent(), a.axes[0], -a.shift)};
        },
    .print =
        [](Printer& p, const Node& n) {
          const auto& a = n.attrs_as<CollectiveAttrs>();
          std::vector<std::vector<int64_t>> pairs;
          for (const auto& group : Groups(p.graph().mesh(), a.axes)) {
            const auto size = static_cast<int64_t>(group.size());
            for (int64_t i = 0; i < size; ++i) {
              pairs.push_back({group[static_cast<size_t>(i)],
                               group[static_cast<size_t>(((i + a.shift) % size + size) % size)]});
            }
          }
          p.Emit(n,
                 "\"stablehlo.collective_permute\"({}) <{{channel_handle = "
                 "#stablehlo.channel_handle<handle = {}, type = 1>, "
                 "source_target_pairs = {}}}> : ({}) -> {}",
                 p.Name(n.operands[0]), p.NextChannel(), GroupsText(pairs), p.Types(n.operands),
                 MlirType(n.results[0]));
        },
    .evaluate_all =
        [](Interpreter& interpreter, const Node& n) {
          EvaluateGroups(interpreter, n, [&](const auto& members) {
            const auto size = static_cast<int64_t>(members.size());
            std::vector<RefTensor> received(members.size());
            for (int64_t i = 0; i < size; ++i) {
              const int64_t target =
                  ((i + n.attrs_as<CollectiveAttrs>().shift) % size + size) % size;
              received[static_cast<size_t>(target)] = *members[static_cast<size_t>(i)];
            }
            return received;
          });
        },
};

Value CollectivePermute(Value x, std::string axis, int64_t shift, Loc loc) {
  const int64_t size = x.graph().mesh().AxisSize(axis);
  if (shift % size == 0) return x;
  CheckManual(kCollectivePermute.name, x.graph(), {axis}, loc);
  auto attrs = std::make_shared<CollectiveAttrs>();
  attrs->axes = {std::move(axis)};
  attrs->shift = shift;
  return MakeValue(kCollectivePermute, {x}, x.type(), loc, attrs);
}

}  // namespace ulmus::graph
