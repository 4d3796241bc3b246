// Reverse-mode differentiation, as a transformation that adds nodes to a graph.
#pragma once

#include <span>

#include "graph/value.h"

namespace ulmus::graph {

// d loss / d x for each x of `wrt`, built into the current region. loss: float scalar of the
// current region. An x that loss does not depend on gets zeros. Gradients have the types of their
// values.
Values Grad(Value loss, const Values& wrt, Loc loc = Loc::current());

// --- for gradient rules of ops with regions ---

// A stretch of nodes to walk back over: the first `num_nodes` of region.nodes from `first`.
struct NodeRange {
  const Region* region = nullptr;
  size_t first = 0, last = 0;  // [first, last)
};
inline NodeRange WholeRegion(const Region& region) { return {&region, 0, region.nodes.size()}; }

// Cotangents of `wrt` from those of `outputs` (null: zero), all values of range.region. New nodes
// go to the current region, which may be another one: forward values they use arrive through its
// importer. Null where nothing flows.
Values Backprop(NodeRange range, const Values& outputs, const Values& cotangents,
                const Values& wrt);

// The same for the inputs of a stretch that was copied in: one cotangent per input, null where not
// `needed`. A value that is passed twice gets its whole cotangent once.
Values BackpropToInputs(NodeRange range, const Values& outputs, const Values& cotangents,
                        const Values& inputs, const std::vector<bool>& needed);

// Which values of `region` depend on the parameters flagged in `parameters` (floats only).
std::vector<bool> DependingResults(const Region& region, const std::vector<bool>& parameters);

// Opens a new region inside the current one in which values of `forward` (a closed region whose
// nodes have already run) may be used. Constants and cheap functions of what is at hand are
// repeated there; `parameter(i)` supplies forward's parameter i; anything else is asked of
// `residual(v)`. Both return a value of the new region.
Region& NewBackwardRegion(const Region& forward,
                          std::function<Value(Region& self, int64_t index)> parameter,
                          std::function<Value(Region& self, Value v)> residual);

// Sums values that may be null.
Value AddMaybe(Value x, Value y);

}  // namespace ulmus::graph
