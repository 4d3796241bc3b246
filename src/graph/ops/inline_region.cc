#include "graph/ops/op.h"

#include "graph/ops/inline_region.h"

namespace ulmus::graph {

Region& TraceRegion(const Values& inputs, const std::function<Values(Values)>& body,
                    const Loc& loc) {
  CHECK_AT(loc, !inputs.empty(), "a region needs at least one input");
  Graph& graph = inputs[0].graph();
  Region& region = graph.NewRegion();
  Values parameters;
  for (Value v : inputs) parameters.push_back(region.AddParameter(v.type(), loc));
  graph.InRegion(region, [&] {
    for (Value v : body(parameters)) region.results.push_back(region.Import(v));
  });
  return region;
}

Node& MakeInlineNode(const OpDef& op, Values inputs, Region& region,
                     std::shared_ptr<const Attrs> attrs, const Loc& loc) {
  std::vector<TensorType> types;
  for (Value v : region.results) types.push_back(v.type());
  inputs.insert(inputs.end(), region.captured.begin(), region.captured.end());
  return region.graph->AddNode(op, std::move(inputs), std::move(types), std::move(attrs), loc,
                               {&region});
}

void PrintInline(Printer& p, const Node& n) {
  std::vector<std::string> arguments;
  for (Value v : n.operands) arguments.emplace_back(p.Name(v));
  p.BindResults(n, p.Inline(*n.regions[0], arguments));
}

void EvaluateInline(Interpreter& interpreter, const Node& n) {
  std::vector<Interpreter::Replicas> arguments;
  for (Value v : n.operands) arguments.push_back(interpreter.Get(v));
  const std::vector<Interpreter::Replicas> results = interpreter.Run(*n.regions[0], arguments);
  for (size_t i = 0; i < results.size(); ++i)
    interpreter.Set(Value(const_cast<Node*>(&n), static_cast<int64_t>(i)), results[i]);
}

}  // namespace ulmus::graph
