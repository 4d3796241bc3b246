#pragma once

#include <string>

#include "graph/value.h"

namespace ulmus::graph {

// Attributes of CheckpointName, read by the gradient rule of Remat.
struct CheckpointNameAttrs : Attrs {
  std::string name;
};

}  // namespace ulmus::graph
