// Every op compiled by every CPU plugin: values and gradients against the naive twin, in f32 and
// bf16. All cases share one program, so that a plugin compiles once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/testing/op_cases.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::graph {
namespace {

struct Tolerance {
  double relative;  // of the largest magnitude in the tensor
  const char* reason;
};

// bf16 keeps 8 bits: one rounding is 2^-9; XLA skips some of the roundings that the twin makes
// between ops, and sums of a few terms differ by several of them.
constexpr Tolerance kF32{2e-5, "polynomial approximations of XLA and sums of up to 64 terms"};
constexpr Tolerance kBF16{0.06, "a chain of bf16 roundings that XLA may keep in f32"};

class OpPlugin : public testing::TestWithParam<pjrt::PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed (make setup)";
  }

  static void Compare(const std::string& what, const HostTensor& got, const RefTensor& want,
                      const Tolerance& tolerance) {
    ASSERT_EQ(got.type(), want.type) << what;
    double scale = 1;
    for (double x : want.data) {
      if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
    }
    size_t worst = 0;
    double worst_error = 0;
    for (size_t i = 0; i < want.data.size(); ++i) {
      const double value = got.Get(static_cast<int64_t>(i)), expected = want.data[i];
      if (std::isnan(expected) ? std::isnan(value) : value == expected) continue;
      const double error =
          std::isfinite(value) && std::isfinite(expected) ? std::fabs(value - expected) : INFINITY;
      if (error > worst_error || std::isnan(value))
        worst = i, worst_error = std::isnan(value) ? INFINITY : error;
    }
    const double allowed = IsFloat(want.type.dtype) ? tolerance.relative * scale : 0;
    EXPECT_LE(worst_error, allowed)
        << what << ": element " << worst << " is " << got.Get(static_cast<int64_t>(worst))
        << ", twin " << want.data[worst] << " (tolerance: " << tolerance.reason << ")";
  }

  // Runs all cases of one mesh as one program and compares each result.
  void RunAll(const Mesh& mesh, DType dtype, const Tolerance& tolerance) {
    Graph graph("cases", mesh);
    std::vector<RefTensor> inputs;
    std::vector<HostTensor> arguments;
    int64_t count = 0;
    for (const OpCase& op_case : AllOpCases()) {
      if (!(op_case.mesh == mesh) || (dtype != DType::kF32 && !op_case.bf16)) continue;
      ++count;
      AddCase(graph, op_case, dtype, true, op_case.name + ".");
      for (RefTensor& input : CaseInputs(op_case, dtype)) {
        arguments.push_back(input.ToHost());
        inputs.push_back(std::move(input));
      }
    }
    ASSERT_GT(count, 2);
    const Result<pjrt::Client*> client = pjrt::SharedClient(GetParam(), mesh.num_devices());
    ASSERT_TRUE(client.ok()) << client.error().ToString();
    const Program program = graph.ToProgram();
    const Result<std::vector<HostTensor>> results = pjrt::RunOnce(**client, program, arguments);
    ASSERT_TRUE(results.ok()) << results.error().ToString();
    const std::vector<RefTensor> twins = Interpret(graph, inputs);
    for (size_t i = 0; i < twins.size(); ++i)
      Compare(program.results[i].name, (*results)[i], twins[i], tolerance);
  }
};

TEST_P(OpPlugin, ValuesAndGradientsEqualTheTwinInFloat32) { RunAll(Mesh(), DType::kF32, kF32); }

TEST_P(OpPlugin, ValuesAndGradientsEqualTheRoundedTwinInBFloat16) {
  RunAll(Mesh(), DType::kBF16, kBF16);
}

TEST_P(OpPlugin, CollectivesAndShardingsOnEightDevicesEqualTheTwin) {
  RunAll(Mesh({{"data", 2}, {"tensor", 4}}), DType::kF32, kF32);
}

INSTANTIATE_TEST_SUITE_P(CpuPlugins, OpPlugin, testing::ValuesIn(pjrt::KnownCpuPlugins()),
                         [](const auto& param_info) { return pjrt::TestName(param_info.param); });

}  // namespace
}  // namespace ulmus::graph
