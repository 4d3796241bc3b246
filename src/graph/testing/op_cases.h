// One small program per op (or per way to use it), shared by the tests that check values, gradients
// and compiled code. A new op adds its rows here; op_test fails while an op has none.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/interpret.h"
#include "graph/value.h"

namespace ulmus::graph {

struct CaseInput {
  TensorType type;
  double low = -2, high = 2;  // values are spread over [low, high]; integers: over low..high
};

struct OpCase {
  std::string name;
  std::vector<CaseInput> inputs;
  std::function<Values(Values)> build;
  bool differentiable = true;
  // Values that bf16 inputs can represent well enough to compare (false for integer and bit
  // tricks).
  bool bf16 = true;
  Mesh mesh = {};  // more than one device: collectives and shardings
};

const std::vector<OpCase>& AllOpCases();

// The case as a program: parameters in0.., results out0.. and, if differentiable, grad0.. of a
// fixed weighted sum of the float outputs. `dtype` replaces f32 in the inputs.
struct CaseProgram {
  std::unique_ptr<Graph> graph;
  size_t num_outputs = 0;
  std::vector<size_t> differentiated;  // inputs, in the order of the grad results
};
CaseProgram BuildCase(const OpCase& op_case, DType dtype = DType::kF32, bool gradients = true);
// Adds the program to a graph that holds others too; names get `prefix`.
CaseProgram AddCase(Graph& graph, const OpCase& op_case, DType dtype, bool gradients,
                    const std::string& prefix);

// Deterministic inputs, rounded to their dtypes.
std::vector<RefTensor> CaseInputs(const OpCase& op_case, DType dtype = DType::kF32);

// The weighted sum itself, for finite differences: double in, double out.
double CaseLoss(const OpCase& op_case, const std::vector<RefTensor>& inputs);

// All op definitions that nodes of the graph use, regions included.
std::vector<const OpDef*> OpsIn(const Graph& graph);

}  // namespace ulmus::graph
