#include "graph/ops/op.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "graph/autodiff.h"

namespace ulmus::graph {

namespace {

// operands: predicate, captured by `then`, captured by `otherwise`. Both regions have captured
// parameters only.
void Print(Printer& p, const Node& n) {
  const std::string name = p.FreshName();
  size_t next = 1;
  p.EmitLine(fmt::format("{}:{} = \"stablehlo.if\"({}) ({{", name, n.results.size(),
                         p.Name(n.operands[0])));
  for (size_t branch = 0; branch < 2; ++branch) {
    const Region& region = *n.regions[branch];
    std::vector<std::string> arguments;
    for (size_t i = 0; i < region.parameters.size(); ++i)
      arguments.emplace_back(p.Name(n.operands[next++]));
    p.Indent();
    const std::vector<std::string> results = p.Inline(region, arguments);
    p.EmitLine(
        fmt::format("stablehlo.return {} : {}", fmt::join(results, ", "), MlirTypes(n.results)));
    p.Dedent();
    if (branch == 0) p.EmitLine("}, {");
  }
  p.EmitLine(fmt::format("}}) : (tensor<i1>) -> ({}){}", MlirTypes(n.results), p.LocText(n)));
  std::vector<std::string> bound;
  for (size_t i = 0; i < n.results.size(); ++i) bound.push_back(fmt::format("{}#{}", name, i));
  p.BindResults(n, bound);
}

void Evaluate(Interpreter& interpreter, const Node& n) {
  const Interpreter::Replicas predicate = interpreter.Get(n.operands[0]);
  const auto run = [&](bool taken) {
    const size_t first = taken ? 1 : 1 + n.regions[0]->parameters.size();
    const Region& region = *n.regions[taken ? 0 : 1];
    std::vector<Interpreter::Replicas> arguments;
    for (size_t i = 0; i < region.parameters.size(); ++i)
      arguments.push_back(interpreter.Get(n.operands[first + i]));
    return interpreter.Run(region, arguments);
  };
  std::vector<Interpreter::Replicas> results = run(predicate[0].data[0] != 0);
  // Inside a manual region devices may differ: those that do take the other branch's results.
  std::vector<size_t> others;
  for (size_t r = 1; r < predicate.size(); ++r) {
    if (predicate[r].data[0] != predicate[0].data[0]) others.push_back(r);
  }
  if (!others.empty()) {
    std::vector<Interpreter::Replicas> other = run(predicate[0].data[0] == 0);
    for (size_t i = 0; i < results.size(); ++i) {
      for (size_t r : others) results[i][r] = std::move(other[i][r]);
    }
  }
  for (size_t i = 0; i < results.size(); ++i)
    interpreter.Set(Value(const_cast<Node*>(&n), static_cast<int64_t>(i)), results[i]);
}

Node& MakeCond(Graph& graph, Value predicate, Region& then, Region& otherwise, const Loc& loc) {
  Values operands = {predicate};
  std::vector<TensorType> types;
  for (Region* region : {&then, &otherwise})
    operands.insert(operands.end(), region->captured.begin(), region->captured.end());
  for (Value v : then.results) types.push_back(v.type());
  return graph.AddNode(kCond, std::move(operands), std::move(types), nullptr, loc,
                       {&then, &otherwise});
}

// Each branch gets its backward branch. What a backward branch needs from its forward branch
// becomes a further result of the forward node, zeros when the other branch ran.
Values Vjp(const VjpContext& c) {
  Node& node = c.node;
  Graph& graph = *node.region->graph;
  const size_t num_results = node.results.size();
  Region* backward[2];
  for (size_t branch = 0; branch < 2; ++branch) {
    Region &forward = *node.regions[branch], &other = *node.regions[1 - branch];
    const size_t first = branch == 0 ? 1 : 1 + node.regions[0]->parameters.size();
    Region& region = NewBackwardRegion(
        forward,
        [&, first](Region& self, int64_t index) {
          return self.Import(node.operands[first + static_cast<size_t>(index)]);
        },
        [&](Region& self, Value v) {
          // Returned already, for the caller or for another gradient.
          const auto returned = std::ranges::find(forward.results, v);
          if (returned != forward.results.end())
            return self.Import(node.result(returned - forward.results.begin()));
          forward.results.push_back(v);
          graph.InRegion(other, [&] { other.results.push_back(ZerosLike(v, node.loc)); });
          node.results.push_back(v.type());
          return self.Import(node.result(static_cast<int64_t>(node.results.size()) - 1));
        });
    backward[branch] = &region;
    Values outputs, cotangents, wrt(forward.parameters.size());
    for (size_t i = 0; i < num_results; ++i) outputs.push_back(forward.results[i]);
    for (size_t i = 0; i < wrt.size(); ++i) wrt[i] = forward.parameters[i]->result();
    graph.InRegion(region, [&] {
      for (Value ct : c.cotangents) cotangents.push_back(ct ? region.Import(ct) : Value());
      Values active;
      for (size_t i = 0; i < wrt.size(); ++i) {
        if (c.needed[first + i]) active.push_back(wrt[i]);
      }
      const Values grads = Backprop(WholeRegion(forward), outputs, cotangents, active);
      // Results: one cotangent per needed operand of the node, zeros for the other branch's.
      size_t next = 0;
      for (size_t i = 1; i < node.operands.size(); ++i) {
        if (!c.needed[i]) continue;
        const bool mine = i >= first && i < first + wrt.size();
        const Value grad = mine ? grads[next++] : Value();
        region.results.push_back(
            region.Import(grad ? grad : ZerosLike(node.operands[i], node.loc)));
      }
    });
    region.importer = nullptr;
  }
  Node& result = MakeCond(graph, node.operands[0], *backward[0], *backward[1], node.loc);
  Values operand_cts(node.operands.size());
  for (size_t i = 1, next = 0; i < node.operands.size(); ++i) {
    if (c.needed[i]) operand_cts[i] = result.result(static_cast<int64_t>(next++));
  }
  return operand_cts;
}

}  // namespace

const OpDef kCond = {.name = "stablehlo.if", .vjp = Vjp, .print = Print, .evaluate_all = Evaluate};

Values Cond(Value pred, const std::function<Values()>& then,
            const std::function<Values()>& otherwise, Loc loc) {
  CHECK_AT(loc, pred.type() == (TensorType{DType::kBool, {}}),
           "{}: the predicate is {}, wants a bool scalar", kCond.name, pred.type().ToString());
  Graph& graph = pred.graph();
  Region* regions[2];
  for (size_t branch = 0; branch < 2; ++branch) {
    regions[branch] = &graph.NewRegion();
    graph.InRegion(*regions[branch], [&] {
      for (Value v : branch == 0 ? then() : otherwise())
        regions[branch]->results.push_back(regions[branch]->Import(v));
    });
  }
  const Values &a = regions[0]->results, &b = regions[1]->results;
  CHECK_AT(loc, a.size() == b.size() && !a.empty(), "{}: the branches return {} and {} values",
           kCond.name, a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK_AT(loc, a[i].type() == b[i].type(),
             "{}: result {} is {} in one branch and {} in the other", kCond.name, i,
             a[i].type().ToString(), b[i].type().ToString());
  }
  return MakeCond(graph, pred, *regions[0], *regions[1], loc).AllResults();
}

}  // namespace ulmus::graph
