#include "graph/autodiff.h"

#include <map>
#include <set>

#include "graph/ops.h"
#include "graph/ops/table.h"

namespace ulmus::graph {
namespace {

using Key = std::pair<const Node*, int64_t>;

Key KeyOf(Value v) { return {v.node(), v.index()}; }

// Nodes of the range that depend on `wrt` through floats.
std::set<const Node*> ActiveNodes(NodeRange range, const Values& wrt) {
  std::set<const Node*> active;
  for (Value v : wrt) active.insert(v.node());
  for (size_t i = range.first; i < range.last; ++i) {
    const Node* node = range.region->nodes[i];
    for (Value operand : node->operands) {
      if (IsFloat(operand.dtype()) && active.contains(operand.node())) active.insert(node);
    }
  }
  return active;
}

// A longer chain of cheap ops is not cheap; it also bounds the recursion along it.
constexpr int kLongestRepeat = 64;

int64_t OperandBytes(const Node& node) {
  int64_t bytes = 0;
  for (Value operand : node.operands) bytes += operand.type().size_bytes();
  return bytes;
}

}  // namespace

Value AddMaybe(Value x, Value y) {
  if (!x) return y;
  return y ? Add(x, y) : x;
}

Values Backprop(NodeRange range, const Values& outputs, const Values& cotangents,
                const Values& wrt) {
  Graph& graph = *range.region->graph;
  const std::set<const Node*> active = ActiveNodes(range, wrt);
  std::map<Key, Value> cts;
  const auto accumulate = [&](Value v, Value ct) {
    if (!ct || !IsFloat(v.dtype()) || !active.contains(v.node())) return;
    CHECK_AT(v.node()->loc, ct.type() == v.type(), "cotangent of {} {} has type {}",
             v.node()->op->name, v.type().ToString(), ct.type().ToString());
    Value& sum = cts[KeyOf(v)];
    sum = AddMaybe(sum, ct);
  };
  for (size_t i = 0; i < outputs.size(); ++i) accumulate(outputs[i], cotangents[i]);

  // wrt values inside the range are leaves: their cotangents are not passed further down.
  std::set<Key> leaves;
  for (Value v : wrt) leaves.insert(KeyOf(v));
  const std::vector<Node*> nodes(range.region->nodes.begin() + static_cast<int64_t>(range.first),
                                 range.region->nodes.begin() + static_cast<int64_t>(range.last));
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    Node& node = **it;
    if (!active.contains(&node)) continue;
    VjpContext context{node, Values(node.results.size()), {}};
    bool any = false;
    for (size_t r = 0; r < node.results.size(); ++r) {
      const Key key{&node, static_cast<int64_t>(r)};
      const auto ct = cts.find(key);
      if (ct == cts.end() || leaves.contains(key)) continue;
      context.cotangents[r] = ct->second;
      any = true;
    }
    if (!any) continue;
    for (Value operand : node.operands)
      context.needed.push_back(IsFloat(operand.dtype()) && active.contains(operand.node()));
    CHECK_AT(node.loc, node.op->vjp != nullptr,
             "{} has no gradient; use StopGradient on its operands if none is wanted",
             node.op->name);
    const Node* saved = graph.set_origin(&node);
    const Values operand_cts = node.op->vjp(context);
    CHECK_AT(node.loc, operand_cts.size() == context.needed.size(),
             "{}: gradient rule gave {} cotangents for {} operands", node.op->name,
             operand_cts.size(), context.needed.size());
    for (size_t i = 0; i < operand_cts.size(); ++i) {
      if (context.needed[i]) accumulate(node.operands[i], operand_cts[i]);
    }
    graph.set_origin(saved);
  }
  Values result;
  for (Value v : wrt) {
    const auto it = cts.find(KeyOf(v));
    result.push_back(it == cts.end() ? Value() : it->second);
  }
  return result;
}

Values BackpropToInputs(NodeRange range, const Values& outputs, const Values& cotangents,
                        const Values& inputs, const std::vector<bool>& needed) {
  Values wrt;
  std::vector<size_t> places;
  std::set<Key> seen;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!needed[i] || !seen.insert(KeyOf(inputs[i])).second) continue;
    wrt.push_back(inputs[i]);
    places.push_back(i);
  }
  const Values grads = Backprop(range, outputs, cotangents, wrt);
  Values cts(inputs.size());
  for (size_t i = 0; i < grads.size(); ++i) cts[places[i]] = grads[i];
  return cts;
}

Values Grad(Value loss, const Values& wrt, Loc loc) {
  Graph& graph = loss.graph();
  Region& region = graph.current();
  CHECK_AT(loc, loss.rank() == 0 && IsFloat(loss.dtype()),
           "Grad: the loss is {}, wants a float scalar", loss.type().ToString());
  CHECK_AT(loc, loss.node()->region == &region,
           "Grad: the loss belongs to another region than the one being built");
  Values own;  // wrt as values of this region: outer ones were captured when the loss used them
  for (Value v : wrt) {
    CHECK_AT(loc, IsFloat(v.dtype()), "Grad: {} is not differentiable", v.type().ToString());
    own.push_back(region.Import(v));
  }
  Values grads = Backprop(WholeRegion(region), {loss}, {SplatLike(loss, 1, loc)}, own);
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i]) grads[i] = ZerosLike(own[i], loc);
  }
  return grads;
}

std::vector<bool> DependingResults(const Region& region, const std::vector<bool>& parameters) {
  Values wrt;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i]) wrt.push_back(region.parameters[i]->result());
  }
  const std::set<const Node*> active = ActiveNodes(WholeRegion(region), wrt);
  std::vector<bool> depends;
  for (Value v : region.results) depends.push_back(IsFloat(v.dtype()) && active.contains(v.node()));
  return depends;
}

Region& NewBackwardRegion(const Region& forward, std::function<Value(Region&, int64_t)> parameter,
                          std::function<Value(Region&, Value)> residual) {
  Graph& graph = *forward.graph;
  Region& region = graph.NewRegion();
  // A value is at hand when it follows from the parameters that need no saving by cheap ops alone.
  // `parameter` returns null for those that have to be saved.
  struct State {
    const Region* forward;
    std::function<Value(Region&, int64_t)> parameter;
    std::function<Value(Region&, Value)> residual;
    std::map<const Node*, bool> free;
    int depth = 0;  // of the chain of cheap ops being repeated

    int64_t ParameterIndex(const Node* node) const {
      for (size_t i = 0; i < forward->parameters.size(); ++i) {
        if (forward->parameters[i] == node) return static_cast<int64_t>(i);
      }
      return -1;
    }
    // The parameter as a value of the new region, or null if it has to be saved.
    Value Parameter(Region& self, Node* node) {
      const std::pair key(node, int64_t{0});
      if (const auto it = self.imported.find(key); it != self.imported.end()) return it->second;
      const Value own = parameter(self, ParameterIndex(node));
      if (own) self.imported[key] = own;
      return own;
    }
    bool Free(Region& self, const Node* node, int limit) {
      if (limit == 0) return false;
      if (const auto it = free.find(node); it != free.end()) return it->second;
      bool result;
      if (node->op == &kParameter) {
        result = static_cast<bool>(Parameter(self, const_cast<Node*>(node)));
      } else {
        result = node->op->cheap && node->regions.empty();
        for (Value operand : node->operands)
          result = result && Free(self, operand.node(), limit - 1);
      }
      return free[node] = result;
    }
  };
  auto state =
      std::make_shared<State>(State{&forward, std::move(parameter), std::move(residual), {}});
  region.importer = [state, &region, &graph](Value v) -> Value {
    Node* node = v.node();
    if (node->region != state->forward) return {};
    if (node->op == &kParameter) {
      const Value own = state->Parameter(region, node);
      return own ? own : state->residual(region, v);
    }
    const bool repeat =
        node->op->cheap && node->regions.empty() && state->depth < kLongestRepeat &&
        (state->Free(region, node, kLongestRepeat) || OperandBytes(*node) <= v.type().size_bytes());
    if (!repeat) return state->residual(region, v);
    Value copy;
    ++state->depth;
    graph.InRegion(region, [&] {
      copy = graph.Clone(*node, node->operands).result(v.index());
    });  // operands are imported
    --state->depth;
    return copy;
  };
  return region;
}

}  // namespace ulmus::graph
