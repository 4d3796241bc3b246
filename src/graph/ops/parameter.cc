#include "graph/ops/op.h"

namespace ulmus::graph {

// Parameters of regions are never printed or evaluated: whoever opens the region binds them.
const OpDef kParameter = {.name = "parameter"};

}  // namespace ulmus::graph
