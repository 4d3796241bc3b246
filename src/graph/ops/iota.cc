#include "graph/ops/op.h"

namespace ulmus::graph {

namespace {

struct IotaAttrs : Attrs {
  int64_t axis = 0;
};

}  // namespace

const OpDef kIota = {
    .name = "stablehlo.iota",
    .vjp = [](const VjpContext&) { return Values{}; },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.iota dim = {} : {}", n.attrs_as<IotaAttrs>().axis,
                 MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const>) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          const auto axis = static_cast<size_t>(n.attrs_as<IotaAttrs>().axis);
          ForEachIndex(out.type.shape, [&](const Dims& index, int64_t flat) {
            out.data[static_cast<size_t>(flat)] = static_cast<double>(index[axis]);
          });
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value Iota(Graph& graph, TensorType type, int64_t axis, Loc loc) {
  auto attrs = std::make_shared<IotaAttrs>();
  attrs->axis = NormalizeAxis(kIota, axis, type.shape.rank(), loc);
  return graph.AddNode(kIota, {}, {std::move(type)}, attrs, loc).result();
}

}  // namespace ulmus::graph
