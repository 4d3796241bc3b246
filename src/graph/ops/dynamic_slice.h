// What dynamic_slice and dynamic_update_slice share.
#pragma once

#include <span>

#include "graph/interpret.h"
#include "graph/value.h"

namespace ulmus::graph {

// Run-time starts moved so that `block` lies inside `whole`, as StableHLO does.
Dims ClampedStarts(std::span<const RefTensor* const> starts, const Shape& whole,
                   const Shape& block);
// CHECKs one integer scalar per axis of x and a block no larger than x.
void CheckStarts(const OpDef& op, Value x, const Values& starts, const Shape& block,
                 const Loc& loc);

}  // namespace ulmus::graph
