#include "graph/ops/op.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "graph/ops/collective.h"

namespace ulmus::graph {

int64_t GroupSize(const Mesh& mesh, const std::vector<std::string>& axes) {
  int64_t size = 1;
  for (const std::string& axis : axes) size *= mesh.AxisSize(axis);
  return size;
}

std::vector<std::vector<int64_t>> Groups(const Mesh& mesh, const std::vector<std::string>& axes) {
  std::map<std::vector<int64_t>, std::map<int64_t, int64_t>>
      groups;  // other coordinates -> position -> device
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    int64_t position = 0;
    for (const std::string& axis : axes)
      position = position * mesh.AxisSize(axis) + mesh.AxisIndex(axis, device);
    std::vector<int64_t> others;
    for (const MeshAxis& axis : mesh.axes()) {
      if (std::ranges::find(axes, axis.name) == axes.end())
        others.push_back(mesh.AxisIndex(axis.name, device));
    }
    groups[others][position] = device;
  }
  std::vector<std::vector<int64_t>> lists;
  for (const auto& [others, members] : groups) {
    lists.emplace_back();
    for (const auto& [position, device] : members) lists.back().push_back(device);
  }
  return lists;
}

std::string GroupsText(const std::vector<std::vector<int64_t>>& groups) {
  std::vector<std::string> rows;
  for (const auto& group : groups) rows.push_back(ListText(group));
  return fmt::format("dense<[{}]> : tensor<{}x{}xi64>", fmt::join(rows, ", "), groups.size(),
                     groups[0].size());
}

std::vector<std::string> ManualAxes(const Graph& graph) {
  std::vector<std::string> axes;
  for (const Region* region = &graph.current(); region != nullptr; region = region->parent)
    axes.insert(axes.end(), region->manual_axes.begin(), region->manual_axes.end());
  return axes;
}

bool OnOneDevice(const Graph& graph) {
  const std::vector<std::string> manual = ManualAxes(graph);
  return std::ranges::all_of(graph.mesh().axes(), [&](const MeshAxis& axis) {
    return axis.size == 1 || std::ranges::count(manual, axis.name) > 0;
  });
}

void CheckManual(const char* op, Graph& graph, const std::vector<std::string>& axes,
                 const Loc& loc) {
  const Region* region = &graph.current();
  while (region != nullptr && region->manual_axes.empty()) region = region->parent;
  CHECK_AT(loc, region != nullptr, "{}: collectives stand inside Manual only", op);
  for (const std::string& axis : axes) {
    CHECK_AT(loc, std::ranges::find(region->manual_axes, axis) != region->manual_axes.end(),
             "{}: '{}' is not a manual axis here ({})", op, axis,
             fmt::join(region->manual_axes, ", "));
  }
}

std::string ChannelText(Printer& p, const Node& n) {
  return fmt::format(
      "channel_handle = #stablehlo.channel_handle<handle = {}, type = 1>, replica_groups = {}",
      p.NextChannel(), GroupsText(Groups(p.graph().mesh(), n.attrs_as<CollectiveAttrs>().axes)));
}

void EvaluateGroups(
    Interpreter& interpreter, const Node& n,
    const std::function<std::vector<RefTensor>(const std::vector<const RefTensor*>&)>& f) {
  const Interpreter::Replicas& x = interpreter.Get(n.operands[0]);
  Interpreter::Replicas out(x.size());
  for (const auto& group : Groups(n.region->graph->mesh(), n.attrs_as<CollectiveAttrs>().axes)) {
    std::vector<const RefTensor*> members;
    for (int64_t device : group) members.push_back(&x[static_cast<size_t>(device)]);
    std::vector<RefTensor> results = f(members);
    for (size_t i = 0; i < group.size(); ++i)
      out[static_cast<size_t>(group[i])] = std::move(results[i]);
  }
  interpreter.Set(Value(const_cast<Node*>(&n), 0), std::move(out));
}

RefTensor CutBlock(const RefTensor& whole, const Dims& offset, const Shape& shape) {
  RefTensor block = RefTensor::Zeros({whole.type.dtype, shape});
  ForEachIndex(shape, [&](const Dims& index, int64_t flat) {
    Dims source = index;
    for (size_t d = 0; d < source.size(); ++d) source[d] += offset[d];
    block.data[static_cast<size_t>(flat)] =
        whole.data[static_cast<size_t>(FlatIndex(whole.type.shape, source))];
  });
  return block;
}

void SetBlock(const RefTensor& block, const Dims& offset, RefTensor& whole) {
  ForEachIndex(block.type.shape, [&](const Dims& index, int64_t flat) {
    Dims target = index;
    for (size_t d = 0; d < target.size(); ++d) target[d] += offset[d];
    whole.data[static_cast<size_t>(FlatIndex(whole.type.shape, target))] =
        block.data[static_cast<size_t>(flat)];
  });
}

RefTensor BlockOf(const RefTensor& x, int64_t dim, int64_t index, int64_t count) {
  Dims dims = x.type.shape.dims(), offset(dims.size(), 0);
  dims[static_cast<size_t>(dim)] /= count;
  offset[static_cast<size_t>(dim)] = index * dims[static_cast<size_t>(dim)];
  return CutBlock(x, offset, Shape(dims));
}

RefTensor Joined(const std::vector<RefTensor>& parts, int64_t dim) {
  Dims dims = parts[0].type.shape.dims(), offset(dims.size(), 0);
  const int64_t size = dims[static_cast<size_t>(dim)];
  dims[static_cast<size_t>(dim)] = size * static_cast<int64_t>(parts.size());
  RefTensor whole = RefTensor::Zeros({parts[0].type.dtype, Shape(dims)});
  for (const RefTensor& part : parts) {
    SetBlock(part, offset, whole);
    offset[static_cast<size_t>(dim)] += size;
  }
  return whole;
}

RefTensor SumOf(const std::vector<const RefTensor*>& parts) {
  RefTensor sum = *parts[0];
  for (size_t p = 1; p < parts.size(); ++p) {
    for (size_t i = 0; i < sum.data.size(); ++i) sum.data[i] += parts[p]->data[i];
  }
  return sum;
}

}  // namespace ulmus::graph
