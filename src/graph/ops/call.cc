#include "graph/ops/op.h"

#include "graph/autodiff.h"

namespace ulmus::graph {

namespace {

// Made once per function, by the first call that is differentiated, and shared by all of them.
struct Derivative {
  Region* forward =
      nullptr;  // the function, returning what the backward pass needs as further results
  std::vector<TensorType> residual_types;
  std::shared_ptr<const Attrs>
      forward_attrs;  // of calls of `forward` whose further results need gradients themselves
  Region* backward = nullptr;
  // Where each parameter of `backward` comes from.
  enum class Source { kParameter, kResidual, kCotangent };
  std::vector<std::pair<Source, int64_t>> inputs;
};

struct CallAttrs : Attrs {
  size_t num_results = 0;  // without residuals
  mutable std::unique_ptr<Derivative> derivative;
};

void Print(Printer& p, const Node& n) {
  p.Emit(n, "func.call @{}({}) : ({}) -> ({})", p.FunctionName(*n.regions[0]), p.Names(n.operands),
         p.Types(n.operands), MlirTypes(n.results));
}

void Evaluate(Interpreter& interpreter, const Node& n) {
  std::vector<Interpreter::Replicas> arguments;
  for (Value v : n.operands) arguments.push_back(interpreter.Get(v));
  const std::vector<Interpreter::Replicas> results = interpreter.Run(*n.regions[0], arguments);
  for (size_t i = 0; i < n.results.size(); ++i)
    interpreter.Set(Value(const_cast<Node*>(&n), static_cast<int64_t>(i)), results[i]);
}

std::unique_ptr<Derivative> Differentiate(Graph& graph, const Region& function, size_t num_results,
                                          const Loc& loc) {
  auto d = std::make_unique<Derivative>();
  Region& forward = graph.CloneRegion(function);
  d->forward = &forward;
  Region* backward = nullptr;
  const auto add_input = [&](Derivative::Source source, size_t index, const TensorType& type) {
    d->inputs.emplace_back(source, static_cast<int64_t>(index));
    return backward->AddParameter(type, loc);
  };
  backward = &NewBackwardRegion(
      forward,
      [&](Region&, int64_t index) {
        const auto i = static_cast<size_t>(index);
        return add_input(Derivative::Source::kParameter, i, forward.parameters[i]->results[0]);
      },
      [&](Region&, Value v) {
        forward.results.push_back(v);
        d->residual_types.push_back(v.type());
        return add_input(Derivative::Source::kResidual, d->residual_types.size() - 1, v.type());
      });
  d->backward = backward;
  Values outputs, cotangents, wrt;
  for (size_t i = 0; i < num_results; ++i) {
    const Value v = forward.results[i];
    if (!IsFloat(v.dtype())) continue;
    outputs.push_back(v);
    cotangents.push_back(add_input(Derivative::Source::kCotangent, i, v.type()));
  }
  for (Node* parameter : forward.parameters) {
    if (IsFloat(parameter->results[0].dtype)) wrt.push_back(parameter->result());
  }
  graph.InRegion(*backward, [&] {
    const Values grads = Backprop(WholeRegion(forward), outputs, cotangents, wrt);
    for (size_t i = 0; i < grads.size(); ++i)
      backward->results.push_back(backward->Import(grads[i] ? grads[i] : ZerosLike(wrt[i], loc)));
  });
  backward->importer = nullptr;
  d->forward_attrs = Function(&forward).attrs();
  return d;
}

Values Vjp(const VjpContext& c) {
  Node& node = c.node;
  Graph& graph = *node.region->graph;
  // A gradient of a gradient reaches the residuals too: from then on they are results like the
  // others.
  for (size_t i = node.attrs_as<CallAttrs>().num_results; i < c.cotangents.size(); ++i) {
    if (!c.cotangents[i]) continue;
    node.attrs = node.attrs_as<CallAttrs>().derivative->forward_attrs;
    break;
  }
  const auto& attrs = node.attrs_as<CallAttrs>();
  if (!attrs.derivative)
    attrs.derivative = Differentiate(graph, *node.regions[0], attrs.num_results, node.loc);
  const Derivative& d = *attrs.derivative;
  if (node.regions[0] != d.forward) {
    node.regions[0] = d.forward;
    node.results.insert(node.results.end(), d.residual_types.begin(), d.residual_types.end());
  }
  Values arguments;
  for (const auto& [source, index] : d.inputs) {
    switch (source) {
      case Derivative::Source::kParameter:
        arguments.push_back(c.operand(index));
        break;
      case Derivative::Source::kResidual:
        arguments.push_back(c.result(static_cast<int64_t>(attrs.num_results) + index));
        break;
      case Derivative::Source::kCotangent:
        arguments.push_back(c.cotangent(index));
        break;
    }
  }
  const Values grads = Call(Function(d.backward), std::move(arguments), node.loc);
  Values cts(node.operands.size());
  for (size_t i = 0, next = 0; i < cts.size(); ++i) {
    if (!IsFloat(node.operands[i].dtype())) continue;
    if (c.needed[i]) cts[i] = grads[next];
    ++next;
  }
  return cts;
}

}  // namespace

const OpDef kCall = {.name = "call", .vjp = Vjp, .print = Print, .evaluate_all = Evaluate};

Function::Function(Region* region) : region_(region) {
  auto attrs = std::make_shared<CallAttrs>();
  attrs->num_results = region->results.size();
  attrs_ = std::move(attrs);
}

Function DefineFunction(Graph& graph, std::vector<TensorType> parameters,
                        const std::function<Values(Values)>& body, Loc loc) {
  Region& region = graph.NewRegion();
  Values values;
  for (TensorType& type : parameters) values.push_back(region.AddParameter(std::move(type), loc));
  graph.InRegion(region, [&] {
    for (Value v : body(values)) region.results.push_back(region.Import(v));
  });
  CHECK_AT(loc, region.captured.empty(),
           "function: the body uses {} {} from outside; pass it as an argument",
           region.captured[0].node()->op->name, region.captured[0].type().ToString());
  CHECK_AT(loc, !region.results.empty(), "function: the body returns nothing");
  return Function(&region);
}

Values Call(Function function, Values arguments, Loc loc) {
  const Region& region = *function.region();
  CHECK_AT(loc, arguments.size() == region.parameters.size(),
           "call: {} arguments for {} parameters", arguments.size(), region.parameters.size());
  std::vector<TensorType> types;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const TensorType& wanted = region.parameters[i]->results[0];
    CHECK_AT(loc, arguments[i].type() == wanted, "call: argument {} is {}, the function takes {}",
             i, arguments[i].type().ToString(), wanted.ToString());
  }
  for (Value v : region.results) types.push_back(v.type());
  return region.graph
      ->AddNode(kCall, std::move(arguments), std::move(types), function.attrs(), loc,
                {function.region()})
      .AllResults();
}

}  // namespace ulmus::graph
