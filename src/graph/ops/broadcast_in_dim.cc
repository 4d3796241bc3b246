#include "graph/ops/op.h"

#include <algorithm>
#include <functional>

namespace ulmus::graph {

namespace {

struct BroadcastAttrs : Attrs {
  Dims axes;
};

}  // namespace

const OpDef kBroadcastInDim = {
    .name = "stablehlo.broadcast_in_dim",
    .vjp =
        [](const VjpContext& c) {
          // Sum over the axes that were added or stretched.
          const Dims& axes = c.node.attrs_as<BroadcastAttrs>().axes;
          const Shape& from = c.operand(0).shape();
          std::vector<bool> kept(static_cast<size_t>(c.result().rank()), false);
          for (size_t i = 0; i < axes.size(); ++i) {
            kept[static_cast<size_t>(axes[i])] = from.dims()[i] == c.result().dim(axes[i]);
          }
          Dims summed;
          for (size_t d = 0; d < kept.size(); ++d) {
            if (!kept[d]) summed.push_back(static_cast<int64_t>(d));
          }
          return Values{Reshape(ReduceSum(c.cotangent(), summed), from)};
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.broadcast_in_dim {}, dims = {} : ({}) -> {}", p.Name(n.operands[0]),
                 ListText(n.attrs_as<BroadcastAttrs>().axes), p.Type(n.operands[0]),
                 MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          const Dims& axes = n.attrs_as<BroadcastAttrs>().axes;
          const Shape& from = in[0]->type.shape;
          Dims source(axes.size());
          ForEachIndex(out.type.shape, [&](const Dims& index, int64_t flat) {
            for (size_t i = 0; i < axes.size(); ++i)
              source[i] = from.dims()[i] == 1 ? 0 : index[static_cast<size_t>(axes[i])];
            out.data[static_cast<size_t>(flat)] =
                in[0]->data[static_cast<size_t>(FlatIndex(from, source))];
          });
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value BroadcastInDim(Value x, Shape shape, Dims axes, Loc loc) {
  bool fits = static_cast<int64_t>(axes.size()) == x.rank() &&
              std::is_sorted(axes.begin(), axes.end(), std::less_equal<>());
  for (size_t i = 0; fits && i < axes.size(); ++i) {
    fits = axes[i] >= 0 && axes[i] < shape.rank() &&
           (x.shape().dims()[i] == 1 || x.shape().dims()[i] == shape.dim(axes[i]));
  }
  CHECK_AT(loc, fits,
           "{}: {} does not broadcast to {} with its axes at {} (increasing; sizes equal or 1)",
           kBroadcastInDim.name, x.shape().ToString(), shape.ToString(), ListText(axes));
  if (x.shape() == shape) return x;
  auto attrs = std::make_shared<BroadcastAttrs>();
  attrs->axes = std::move(axes);
  return MakeValue(kBroadcastInDim, {x}, {x.dtype(), std::move(shape)}, loc, attrs);
}

}  // namespace ulmus::graph
