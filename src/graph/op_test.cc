// Every op: gradients against central differences in double, and a case in the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/ops/table.h"
#include "graph/testing/op_cases.h"

namespace ulmus::graph {
namespace {

class OpGradient : public testing::TestWithParam<OpCase> {};

TEST_P(OpGradient, EqualsCentralDifferencesInDouble) {
  const OpCase& op_case = GetParam();
  const CaseProgram program = BuildCase(op_case, DType::kF64);
  const std::vector<RefTensor> inputs = CaseInputs(op_case, DType::kF64);
  const std::vector<RefTensor> results = Interpret(*program.graph, inputs, {.round = false});
  for (size_t g = 0; g < program.differentiated.size(); ++g) {
    const size_t input = program.differentiated[g];
    const RefTensor& grad = results[program.num_outputs + g];
    for (size_t i = 0; i < grad.data.size(); ++i) {
      std::vector<RefTensor> moved = inputs;
      const double x = inputs[input].data[i], h = 1e-5 * std::max(1.0, std::fabs(x));
      moved[input].data[i] = x + h;
      const double above = CaseLoss(op_case, moved);
      moved[input].data[i] = x - h;
      const double below = CaseLoss(op_case, moved);
      const double difference = (above - below) / (2 * h);
      // Truncation h^2 f'''/6 and cancellation eps/h are both near 1e-10 of the loss here.
      EXPECT_NEAR(grad.data[i], difference, 1e-7 * std::max(1.0, std::fabs(difference)))
          << op_case.name << ": input " << input << " element " << i << " x = " << x;
    }
  }
}

std::vector<OpCase> DifferentiableCases() {
  std::vector<OpCase> cases;
  std::ranges::copy_if(AllOpCases(), std::back_inserter(cases), &OpCase::differentiable);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ops, OpGradient, testing::ValuesIn(DifferentiableCases()),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(OpTable, EveryOpHasACase) {
  std::vector<const OpDef*> used;
  for (const OpCase& op_case : AllOpCases()) {
    const std::vector<const OpDef*> ops = OpsIn(*BuildCase(op_case).graph);
    used.insert(used.end(), ops.begin(), ops.end());
  }
  for (const OpDef* op : AllOps())
    EXPECT_NE(std::ranges::find(used, op), used.end()) << op->name << " has no case in op_cases.cc";
}

TEST(OpTable, EveryCaseIsFiniteInDouble) {
  for (const OpCase& op_case : AllOpCases()) {
    if (op_case.name == "is_finite" || op_case.name == "constants")
      continue;  // infinities are their subject
    const CaseProgram program = BuildCase(op_case, DType::kF64);
    for (const RefTensor& t : Interpret(*program.graph, CaseInputs(op_case, DType::kF64))) {
      for (double x : t.data) EXPECT_TRUE(std::isfinite(x)) << op_case.name;
    }
  }
}

}  // namespace
}  // namespace ulmus::graph
