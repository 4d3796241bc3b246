#include "graph/ops/op.h"

namespace ulmus::graph {

// min(max(x, low), high); not an op of its own in the text, so that both gradients come from Max
// and Min.
Value Clamp(Value x, double low, double high, Loc loc) {
  CHECK_AT(loc, low <= high, "clamp: low {} is above high {}", low, high);
  return Min(Max(x, SplatLike(x, low, loc), loc), SplatLike(x, high, loc), loc);
}

}  // namespace ulmus::graph
