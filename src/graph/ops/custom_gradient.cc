#include "graph/ops/op.h"

#include <algorithm>

#include "graph/autodiff.h"
#include "graph/ops/inline_region.h"

namespace ulmus::graph {

namespace {

struct CustomGradientAttrs : Attrs {
  size_t num_inputs = 0, num_outputs = 0;
  std::function<Values(Values, Values, Values)> backward;
};

// A gradient of the gradient reaches the residuals as well, which the forward function's own ops
// compute: they are run again and differentiated.
Values ResidualVjp(const VjpContext& c, size_t num_outputs) {
  Graph& graph = *c.node.region->graph;
  Region& current = graph.current();
  Values inputs, cotangents(num_outputs);
  for (Value v : c.node.operands) inputs.push_back(current.Import(v));
  for (size_t i = num_outputs; i < c.cotangents.size(); ++i)
    cotangents.push_back(c.cotangents[i] ? current.Import(c.cotangents[i]) : Value());
  const size_t first = current.nodes.size();
  const Values outputs = graph.InlineCopy(*c.node.regions[0], inputs,
                                          [](const Node&, const Values&) { return Value(); });
  return BackpropToInputs({&current, first, current.nodes.size()}, outputs, cotangents, inputs,
                          c.needed);
}

Values Vjp(const VjpContext& c) {
  const auto& attrs = c.node.attrs_as<CustomGradientAttrs>();
  for (size_t i = attrs.num_inputs; i < c.needed.size(); ++i) {
    CHECK_AT(c.node.loc, !c.needed[i],
             "custom_gradient: the forward function uses {} from outside, which needs a gradient; "
             "pass it as an input",
             c.node.operands[i].type().ToString());
  }
  Graph& graph = *c.node.region->graph;
  Region& current = graph.current();
  Values inputs, residuals, cotangents;
  for (size_t i = 0; i < attrs.num_inputs; ++i)
    inputs.push_back(current.Import(c.node.operands[i]));
  for (size_t i = 0; i < attrs.num_outputs; ++i)
    cotangents.push_back(c.cotangent(static_cast<int64_t>(i)));
  for (size_t i = attrs.num_outputs; i < c.node.results.size(); ++i)
    residuals.push_back(current.Import(c.result(static_cast<int64_t>(i))));
  Values cts = attrs.backward(std::move(inputs), std::move(residuals), std::move(cotangents));
  CHECK_AT(c.node.loc, cts.size() == attrs.num_inputs,
           "custom_gradient: the backward function gave {} cotangents for {} inputs", cts.size(),
           attrs.num_inputs);
  cts.resize(c.needed.size());
  if (std::any_of(c.cotangents.begin() + static_cast<int64_t>(attrs.num_outputs),
                  c.cotangents.end(), [](Value ct) { return static_cast<bool>(ct); })) {
    const Values more = ResidualVjp(c, attrs.num_outputs);
    for (size_t i = 0; i < cts.size(); ++i) cts[i] = AddMaybe(cts[i], more[i]);
  }
  return cts;
}

}  // namespace

const OpDef kCustomGradient = {
    .name = "custom_gradient", .vjp = Vjp, .print = PrintInline, .evaluate_all = EvaluateInline};

Values CustomGradient(Values inputs, const std::function<CustomForward(Values)>& forward,
                      std::function<Values(Values, Values, Values)> backward, Loc loc) {
  auto attrs = std::make_shared<CustomGradientAttrs>();
  attrs->num_inputs = inputs.size();
  attrs->backward = std::move(backward);
  Region& region = TraceRegion(
      inputs,
      [&](Values parameters) {
        CustomForward result = forward(std::move(parameters));
        attrs->num_outputs = result.outputs.size();
        result.outputs.insert(result.outputs.end(), result.residuals.begin(),
                              result.residuals.end());
        return result.outputs;
      },
      loc);
  Values all = MakeInlineNode(kCustomGradient, std::move(inputs), region, attrs, loc).AllResults();
  all.resize(attrs->num_outputs);
  return all;
}

}  // namespace ulmus::graph
