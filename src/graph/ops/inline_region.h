// Ops that own one region which is printed and evaluated in place (remat, custom_gradient, portable
// kernels).
#pragma once

#include <functional>

#include "graph/interpret.h"
#include "graph/print.h"
#include "graph/value.h"

namespace ulmus::graph {

// Runs `body` on parameters of the inputs' types in a new region.
Region& TraceRegion(const Values& inputs, const std::function<Values(Values)>& body,
                    const Loc& loc);
// A node with operands = inputs and what the region captured, results = the region's.
Node& MakeInlineNode(const OpDef& op, Values inputs, Region& region,
                     std::shared_ptr<const Attrs> attrs, const Loc& loc);
void PrintInline(Printer& p, const Node& n);
void EvaluateInline(Interpreter& interpreter, const Node& n);

}  // namespace ulmus::graph
