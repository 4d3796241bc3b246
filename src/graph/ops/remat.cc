#include "graph/ops/op.h"

#include <algorithm>
#include <map>

#include "graph/autodiff.h"
#include "graph/ops/checkpoint_name.h"
#include "graph/ops/inline_region.h"

namespace ulmus::graph {

namespace {

struct RematAttrs : Attrs {
  RematPolicy policy;
  size_t num_results = 0;  // without saved values
};

// Values of the region that the policy keeps, in order.
Values SavedValues(const Region& region, const RematPolicy& policy) {
  Values saved;
  for (Node* node : region.nodes) {
    if (node->op != &kCheckpointName) continue;
    if (std::ranges::find(policy.save, node->attrs_as<CheckpointNameAttrs>().name) !=
        policy.save.end())
      saved.push_back(node->result());
  }
  return saved;
}

Values Vjp(const VjpContext& c) {
  Node& node = c.node;
  Region& region = *node.regions[0];
  Graph& graph = *region.graph;
  const auto& attrs = node.attrs_as<RematAttrs>();
  // Saved values become results of the forward node.
  const Values saved = SavedValues(region, attrs.policy);
  if (node.results.size() == attrs.num_results) {
    for (Value v : saved) {
      region.results.push_back(v);
      node.results.push_back(v.type());
    }
  }
  // The inputs as values of the backward region. Where the forward pass stands in the same region,
  // a barrier keeps the compiler from merging both runs; between two loops nothing can merge them.
  Region& current = graph.current();
  Values inputs;
  for (Value v : node.operands) inputs.push_back(current.Import(v));
  if (node.region == &current) inputs = OptimizationBarrier(inputs, node.loc);
  std::map<const Node*, Value> kept;
  for (size_t i = 0; i < saved.size(); ++i)
    kept[saved[i].node()] = node.result(static_cast<int64_t>(attrs.num_results + i));

  const size_t first = current.nodes.size();
  const Values outputs =
      graph.InlineCopy(region, inputs, [&](const Node& n, const Values& operands) -> Value {
        const auto it = kept.find(&n);
        if (it == kept.end()) return {};
        // The kept value in front, the recomputed one behind it for the gradient to flow to.
        return graph.AddNode(kCheckpointName, {operands[0], it->second}, n.results, n.attrs, n.loc)
            .result();
      });
  Values cotangents;
  for (size_t i = 0; i < attrs.num_results; ++i)
    cotangents.push_back(c.cotangents[i] ? current.Import(c.cotangents[i]) : Value());
  return BackpropToInputs(
      {&current, first, current.nodes.size()},
      Values(outputs.begin(), outputs.begin() + static_cast<int64_t>(attrs.num_results)),
      cotangents, inputs, c.needed);
}

}  // namespace

const OpDef kRemat = {
    .name = "remat", .vjp = Vjp, .print = PrintInline, .evaluate_all = EvaluateInline};

Values Remat(Values inputs, const std::function<Values(Values)>& body, RematPolicy policy,
             Loc loc) {
  Region& region = TraceRegion(inputs, body, loc);
  auto attrs = std::make_shared<RematAttrs>();
  attrs->policy = std::move(policy);
  attrs->num_results = region.results.size();
  return MakeInlineNode(kRemat, std::move(inputs), region, attrs, loc).AllResults();
}

}  // namespace ulmus::graph
