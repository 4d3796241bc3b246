#include "graph/ops/op.h"

#include <algorithm>

namespace ulmus::graph {

namespace {

struct ReverseAttrs : Attrs {
  Dims axes;
};

}  // namespace

const OpDef kReverse = {
    .name = "stablehlo.reverse",
    .vjp =
        [](const VjpContext& c) {
          return Values{Reverse(c.cotangent(), c.node.attrs_as<ReverseAttrs>().axes)};
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.reverse {}, dims = {} : {}", p.Name(n.operands[0]),
                 ListText(n.attrs_as<ReverseAttrs>().axes), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          ForEachIndex(out.type.shape, [&](const Dims& index, int64_t flat) {
            Dims source = index;
            for (int64_t axis : n.attrs_as<ReverseAttrs>().axes) {
              const auto d = static_cast<size_t>(axis);
              source[d] = out.type.shape.dims()[d] - 1 - index[d];
            }
            out.data[static_cast<size_t>(flat)] =
                in[0]->data[static_cast<size_t>(FlatIndex(out.type.shape, source))];
          });
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value Reverse(Value x, Dims axes, Loc loc) {
  for (int64_t& axis : axes) axis = NormalizeAxis(kReverse, axis, x.rank(), loc);
  Dims sorted = axes;
  std::ranges::sort(sorted);
  CHECK_AT(loc, std::ranges::adjacent_find(sorted) == sorted.end(),
           "{}: an axis of {} is named twice", kReverse.name, ListText(axes));
  auto attrs = std::make_shared<ReverseAttrs>();
  attrs->axes = std::move(axes);
  return MakeValue(kReverse, {x}, x.type(), loc, attrs);
}

}  // namespace ulmus::graph
