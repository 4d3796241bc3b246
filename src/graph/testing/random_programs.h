// Random programs that nest every op that owns a region: what a hand-made case would not think of.
// The same seed gives the same program. Differentiable almost everywhere, values of order one, so
// that finite differences and float32 both hold.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/interpret.h"
#include "graph/value.h"

namespace ulmus::graph {

struct RandomProgram {
  Value loss;  // float scalar of the outermost region
  Values wrt;  // its float parameters
  std::vector<RefTensor> arguments;
};

// Adds the program to `graph`; parameters are named prefix + "in0"...
RandomProgram AddRandomProgram(Graph& graph, uint64_t seed, DType dtype, const std::string& prefix);

}  // namespace ulmus::graph
