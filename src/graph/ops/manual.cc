#include "graph/ops/op.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "graph/autodiff.h"
#include "graph/ops/collective.h"

namespace ulmus::graph {

namespace {

struct ManualAttrs : Attrs {
  ManualSpec spec;  // spec.in covers captured operands too
};

std::string ShardingList(const std::vector<Sharding>& shardings) {
  std::vector<std::string> parts;
  for (const Sharding& s : shardings) parts.push_back(ShardyText(s));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

void Print(Printer& p, const Node& n) {
  const auto& [spec] = n.attrs_as<ManualAttrs>();
  const Region& body = *n.regions[0];
  std::vector<std::string> axes, names, parameters;
  for (const std::string& axis : spec.axes) axes.push_back(fmt::format("\"{}\"", axis));
  for (const Node* parameter : body.parameters) {
    names.push_back(p.FreshName());
    parameters.push_back(fmt::format("{}: {}", names.back(), MlirType(parameter->results[0])));
  }
  const std::string name = p.FreshName();
  p.EmitLine(
      fmt::format("{}:{} = sdy.manual_computation({}) in_shardings={} out_shardings={} "
                  "manual_axes={{{}}} ({}) {{",
                  name, n.results.size(), p.Names(n.operands), ShardingList(spec.in),
                  ShardingList(spec.out), fmt::join(axes, ", "), fmt::join(parameters, ", ")));
  p.Indent();
  const std::vector<std::string> results = p.Inline(body, names);
  p.EmitLine(fmt::format("sdy.return {} : {}", fmt::join(results, ", "), p.Types(body.results)));
  p.Dedent();
  p.EmitLine(
      fmt::format("}} : ({}) -> ({}){}", p.Types(n.operands), MlirTypes(n.results), p.LocText(n)));
  std::vector<std::string> bound;
  for (size_t i = 0; i < n.results.size(); ++i) bound.push_back(fmt::format("{}#{}", name, i));
  p.BindResults(n, bound);
}

void Evaluate(Interpreter& interpreter, const Node& n) {
  const auto& [spec] = n.attrs_as<ManualAttrs>();
  const Mesh& mesh = n.region->graph->mesh();
  const int64_t devices = mesh.num_devices();
  CHECK_AT(n.loc, interpreter.num_replicas() == 1, "manual regions do not nest");
  std::vector<Interpreter::Replicas> arguments;
  for (size_t i = 0; i < n.operands.size(); ++i) {
    const RefTensor& whole = interpreter.Get(n.operands[i])[0];
    const Shape local = LocalShape(mesh, whole.type.shape, spec.in[i]);
    arguments.emplace_back();
    for (int64_t d = 0; d < devices; ++d) {
      arguments.back().push_back(
          CutBlock(whole, ShardOffsets(mesh, whole.type.shape, spec.in[i], d), local));
    }
  }
  const std::vector<Interpreter::Replicas> results =
      interpreter.RunReplicated(*n.regions[0], arguments, devices);
  for (size_t i = 0; i < results.size(); ++i) {
    RefTensor whole = RefTensor::Zeros(n.results[i]);
    for (int64_t d = devices; d-- > 0;) {  // device 0 has the last word on replicated parts
      SetBlock(results[i][static_cast<size_t>(d)],
               ShardOffsets(mesh, whole.type.shape, spec.out[i], d), whole);
    }
    interpreter.Set(Value(const_cast<Node*>(&n), static_cast<int64_t>(i)), {std::move(whole)});
  }
}

Sharding WithLeading(std::vector<std::string> axes, int64_t rank) {
  Sharding sharding = Sharding::Replicated(rank + 1);
  sharding.dims[0] = std::move(axes);
  return sharding;
}

// Manual axes that `sharding` does not use: the value is the same along them.
std::vector<std::string> UnusedAxes(const ManualSpec& spec, const Sharding& sharding) {
  std::vector<std::string> unused;
  for (const std::string& axis : spec.axes) {
    const bool used = std::ranges::any_of(
        sharding.dims, [&](const auto& dim) { return std::ranges::find(dim, axis) != dim.end(); });
    if (!used) unused.push_back(axis);
  }
  return unused;
}

Node& MakeManual(Graph& graph, Values operands, ManualSpec spec, Region& body, const Loc& loc) {
  for (Value v : body.captured) {
    operands.push_back(v);
    spec.in.push_back(Sharding::Replicated(v.rank()));
  }
  std::vector<TensorType> types;
  for (size_t i = 0; i < body.results.size(); ++i) {
    Dims dims = body.results[i].shape().dims();
    for (size_t d = 0; d < dims.size(); ++d)
      dims[d] *= NumShards(graph.mesh(), spec.out[i], static_cast<int64_t>(d));
    types.push_back({body.results[i].dtype(), Shape(dims)});
  }
  auto attrs = std::make_shared<ManualAttrs>();
  attrs->spec = std::move(spec);
  return graph.AddNode(kManual, std::move(operands), std::move(types), attrs, loc, {&body});
}

// The backward pass is a manual region over the same axes. Convention: the cotangents that devices
// hold of a value that is equal along an axis add up to its cotangent. So a cotangent that enters
// is divided by the sizes of the axes along which its value is equal, and one that leaves is summed
// over them. Forward values it needs leave the forward region stacked along a new leading axis, one
// block per device.
Values Vjp(const VjpContext& c) {
  Node& node = c.node;
  Region& forward = *node.regions[0];
  Graph& graph = *forward.graph;
  ManualSpec spec = node.attrs_as<ManualAttrs>().spec;
  const size_t num_results = node.results.size();
  const int64_t num_devices = GroupSize(graph.mesh(), spec.axes);

  ManualSpec backward_spec{{}, {}, spec.axes};
  Values operands;
  Region* backward = nullptr;
  const auto add_operand = [&](Value operand, const Sharding& sharding, const TensorType& local) {
    operands.push_back(operand);
    backward_spec.in.push_back(sharding);
    return backward->AddParameter(local, node.loc);
  };
  std::vector<Value> kept;
  backward = &NewBackwardRegion(
      forward,
      [&](Region&, int64_t index) {
        const auto i = static_cast<size_t>(index);
        return add_operand(node.operands[i], spec.in[i], forward.parameters[i]->results[0]);
      },
      [&](Region& self, Value v) {
        kept.push_back(v);
        Dims stacked = v.shape().dims();
        stacked.insert(stacked.begin(), 1);
        const Value block =
            add_operand(Value(), WithLeading(spec.axes, v.rank()), {v.dtype(), Shape(stacked)});
        Value own;
        graph.InRegion(self, [&] { own = Reshape(block, v.shape(), node.loc); });
        return own;
      });
  backward->manual_axes = spec.axes;

  Values outputs, cotangents, wrt, ct_blocks;
  std::vector<int64_t> shares;
  for (size_t i = 0; i < num_results; ++i) {
    if (!c.cotangents[i]) continue;
    outputs.push_back(forward.results[i]);
    ct_blocks.push_back(add_operand(c.cotangents[i], spec.out[i], forward.results[i].type()));
    shares.push_back(GroupSize(graph.mesh(), UnusedAxes(spec, spec.out[i])));
  }
  std::vector<size_t> wrt_operands;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (!c.needed[i]) continue;
    wrt.push_back(forward.parameter(static_cast<int64_t>(i)));
    wrt_operands.push_back(i);
  }
  graph.InRegion(*backward, [&] {
    for (size_t i = 0; i < ct_blocks.size(); ++i) {
      cotangents.push_back(
          shares[i] == 1
              ? ct_blocks[i]
              : Div(ct_blocks[i], SplatLike(ct_blocks[i], static_cast<double>(shares[i]))));
    }
    const Values grads = Backprop(WholeRegion(forward), outputs, cotangents, wrt);
    for (size_t i = 0; i < wrt.size(); ++i) {
      const Sharding& sharding = spec.in[wrt_operands[i]];
      const Value grad = grads[i] ? backward->Import(grads[i]) : ZerosLike(wrt[i], node.loc);
      backward->results.push_back(AllReduce(grad, UnusedAxes(spec, sharding), node.loc));
      backward_spec.out.push_back(sharding);
    }
  });
  backward->importer = nullptr;

  // The forward region hands out what the backward region asked for.
  size_t next_kept = num_results;
  for (Value v : kept) {
    Dims block = v.shape().dims();
    block.insert(block.begin(), 1);
    Value out;
    graph.InRegion(forward, [&] { out = Reshape(v, Shape(block), node.loc); });
    forward.results.push_back(out);
    spec.out.push_back(WithLeading(spec.axes, v.rank()));
    block[0] = num_devices;
    node.results.push_back({v.dtype(), Shape(block)});
  }
  auto attrs = std::make_shared<ManualAttrs>();
  attrs->spec = spec;
  node.attrs = std::move(attrs);
  for (Value& operand : operands) {
    if (!operand) operand = node.result(static_cast<int64_t>(next_kept++));
  }
  Node& result =
      MakeManual(graph, std::move(operands), std::move(backward_spec), *backward, node.loc);
  Values cts(node.operands.size());
  for (size_t i = 0; i < wrt_operands.size(); ++i)
    cts[wrt_operands[i]] = result.result(static_cast<int64_t>(i));
  return cts;
}

}  // namespace

const OpDef kManual = {
    .name = "sdy.manual_computation", .vjp = Vjp, .print = Print, .evaluate_all = Evaluate};

Values Manual(Values inputs, ManualSpec spec, const std::function<Values(Values)>& body, Loc loc) {
  CHECK_AT(loc, !inputs.empty() && inputs.size() == spec.in.size(),
           "{}: {} inputs, {} input shardings", kManual.name, inputs.size(), spec.in.size());
  Graph& graph = inputs[0].graph();
  const Mesh& mesh = graph.mesh();
  if (mesh.num_devices() == 1) return body(std::move(inputs));
  const auto check_axes = [&](const char* what, size_t i, const Sharding& sharding) {
    for (const auto& dim : sharding.dims) {
      for (const std::string& axis : dim) {
        CHECK_AT(loc, std::ranges::find(spec.axes, axis) != spec.axes.end(),
                 "{}: {} {} is split over '{}', which is not among the manual axes ({})",
                 kManual.name, what, i, axis, fmt::join(spec.axes, ", "));
      }
    }
  };
  Region& region = graph.NewRegion();
  region.manual_axes = spec.axes;
  Values blocks;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Status valid = ValidateSharding(mesh, inputs[i].shape(), spec.in[i]);
    CHECK_AT(loc, valid.ok(), "{}: input {}: {}", kManual.name, i, valid.message());
    check_axes("input", i, spec.in[i]);
    blocks.push_back(region.AddParameter(
        {inputs[i].dtype(), LocalShape(mesh, inputs[i].shape(), spec.in[i])}, loc));
  }
  graph.InRegion(region, [&] {
    for (Value v : body(blocks)) region.results.push_back(region.Import(v));
  });
  CHECK_AT(loc, region.results.size() == spec.out.size(), "{}: {} results, {} output shardings",
           kManual.name, region.results.size(), spec.out.size());
  for (size_t i = 0; i < spec.out.size(); ++i) {
    CHECK_AT(loc, static_cast<int64_t>(spec.out[i].dims.size()) == region.results[i].rank(),
             "{}: output {} is {}, its sharding {} has another rank", kManual.name, i,
             region.results[i].type().ToString(), spec.out[i].ToString());
    check_axes("output", i, spec.out[i]);
  }
  return MakeManual(graph, std::move(inputs), std::move(spec), region, loc).AllResults();
}

}  // namespace ulmus::graph
