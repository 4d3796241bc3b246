#include "graph/ops/op.h"

#include "graph/ops/collective.h"

namespace ulmus::graph {

const OpDef kAxisIndex = {
    .name = "axis_index",
    .print =
        [](Printer& p, const Node& n) {
          // (partition id / stride of the axis) % its size: partitions are numbered row-major over
          // the mesh.
          const std::string& axis = n.attrs_as<CollectiveAttrs>().axes[0];
          int64_t stride = 1;
          const auto& axes = p.graph().mesh().axes();
          for (size_t i = axes.size(); i-- > 0 && axes[i].name != axis;) stride *= axes[i].size;
          const std::string id = p.EmitTemp("stablehlo.partition_id : tensor<ui32>");
          const std::string by =
              p.EmitTemp(fmt::format("stablehlo.constant dense<{}> : tensor<ui32>", stride));
          const std::string of = p.EmitTemp(fmt::format(
              "stablehlo.constant dense<{}> : tensor<ui32>", p.graph().mesh().AxisSize(axis)));
          const std::string row =
              p.EmitTemp(fmt::format("stablehlo.divide {}, {} : tensor<ui32>", id, by));
          p.Emit(n, "stablehlo.remainder {}, {} : tensor<ui32>", row, of);
        },
    .evaluate_all =
        [](Interpreter& interpreter, const Node& n) {
          const Mesh& mesh = n.region->graph->mesh();
          Interpreter::Replicas out;
          for (int64_t device = 0; device < interpreter.num_replicas(); ++device) {
            out.push_back({n.results[0],
                           {static_cast<double>(
                               mesh.AxisIndex(n.attrs_as<CollectiveAttrs>().axes[0], device))}});
          }
          interpreter.Set(Value(const_cast<Node*>(&n), 0), std::move(out));
        },
    .cheap = true,
};

Value AxisIndex(Graph& graph, std::string axis, Loc loc) {
  const TensorType type{DType::kU32, {}};
  if (graph.mesh().AxisSize(axis) == 1) return Splat(graph, 0, type, loc);
  CheckManual(kAxisIndex.name, graph, {axis}, loc);
  auto attrs = std::make_shared<CollectiveAttrs>();
  attrs->axes = {std::move(axis)};
  return graph.AddNode(kAxisIndex, {}, {type}, attrs, loc).result();
}

}  // namespace ulmus::graph
