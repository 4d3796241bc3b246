// The RMSNorm custom calls inside compiled programs, on every CPU plugin we support.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <ostream>

#include "kernels/table.h"
#include "kernels/testing/rms_norm_reference.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kEps = 1e-6;
constexpr double kTolerance = 4e-6;  // f32 statistics; see rms_norm_test.cc

class RmsNormCallTest : public testing::TestWithParam<pjrt::PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed; run `make setup`";
  }
  // With all kernels registered.
  static pjrt::Client& ClientOf(int64_t num_devices) {
    const Result<pjrt::Client*> client = pjrt::SharedClient(GetParam(), num_devices);
    CHECK(client.ok(), "{}", client.status().ToString());
    const Status registered = pjrt::RegisterCustomCalls((*client)->plugin(), AllKernels());
    CHECK(registered.ok(), "{}", registered.ToString());
    return **client;
  }
};

INSTANTIATE_TEST_SUITE_P(Plugins, RmsNormCallTest, testing::ValuesIn(pjrt::KnownCpuPlugins()),
                         [](const auto& plugin) {
                           std::string name = plugin.param.name;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

std::string Tensor(const TensorType& type) {
  std::string text = "tensor<";
  for (const int64_t dim : type.shape.dims()) text += std::to_string(dim) + "x";
  return text + std::string(MlirName(type.dtype)) + ">";
}

std::string ForwardText(const std::string& operands, const TensorType& x, const TensorType& scale,
                        const std::string& eps = "eps = 1.0e-6 : f32") {
  return "stablehlo.custom_call @ulmus_rms_norm(" + operands +
         ") {api_version = 4 : i32, backend_config = {" + eps + "}} : (" + Tensor(x) + ", " +
         Tensor(scale) + ") -> " + Tensor(x);
}

std::string BackwardText(const std::string& operands, const TensorType& x,
                         const TensorType& scale) {
  return "stablehlo.custom_call @ulmus_rms_norm_backward(" + operands +
         ") {api_version = 4 : i32, backend_config = {eps = 1.0e-6 : f32}} : (" + Tensor(x) + ", " +
         Tensor(scale) + ", " + Tensor(x) + ") -> (" + Tensor(x) + ", " + Tensor(scale) + ")";
}

ProgramValue Argument(std::string name, TensorType type) {
  const int64_t rank = type.shape.rank();
  return {std::move(name), std::move(type), Sharding::Replicated(rank), -1};
}

// y, dx, dscale of x, scale, ct in one program.
Program ForwardAndBackward(const TensorType& x, const TensorType& scale) {
  return {.name = "rms_norm",
          .text = "module @rms_norm {\n  func.func public @main(%x: " + Tensor(x) + ", %scale: " +
                  Tensor(scale) + ", %ct: " + Tensor(x) + ") -> (" + Tensor(x) + ", " + Tensor(x) +
                  ", " + Tensor(scale) + ") {\n    %y = " + ForwardText("%x, %scale", x, scale) +
                  "\n    %d:2 = " + BackwardText("%x, %scale, %ct", x, scale) +
                  "\n    return %y, %d#0, %d#1 : " + Tensor(x) + ", " + Tensor(x) + ", " +
                  Tensor(scale) + "\n  }\n}",
          .mesh = {},
          .arguments = {Argument("x", x), Argument("scale", scale), Argument("ct", x)},
          .results = {Argument("y", x), Argument("dx", x), Argument("dscale", scale)},
          .custom_calls = {"ulmus_rms_norm", "ulmus_rms_norm_backward"}};
}

HostTensor Waves(TensorType type, double phase) {
  HostTensor tensor(std::move(type));
  for (int64_t i = 0; i < tensor.num_elements(); ++i)
    tensor.Set(i, 1.5 * std::sin(0.7 * static_cast<double>(i) + phase) + 0.1);
  return tensor;
}

std::vector<HostTensor> Inputs(const TensorType& x, const TensorType& scale) {
  std::vector<HostTensor> inputs;
  inputs.push_back(Waves(x, 0));
  inputs.push_back(Waves(scale, 1));
  inputs.push_back(Waves(x, 2));
  return inputs;
}

std::vector<double> Doubles(const HostTensor& tensor) {
  std::vector<double> values;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) values.push_back(tensor.Get(i));
  return values;
}

void ExpectNear(const HostTensor& got, const std::vector<double>& want, double tolerance,
                const char* what) {
  ASSERT_EQ(got.num_elements(), static_cast<int64_t>(want.size()));
  int64_t worst = 0;
  const auto error = [&](int64_t i) {
    return std::fabs(got.Get(i) - want[static_cast<size_t>(i)]);
  };
  for (int64_t i = 1; i < got.num_elements(); ++i) {
    if (!(error(i) <= error(worst))) worst = i;
  }
  EXPECT_LE(error(worst), tolerance) << what << "[" << worst << "] = " << got.Get(worst)
                                     << ", expected " << want[static_cast<size_t>(worst)];
}

void ExpectTwin(const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& results) {
  const std::vector<double> x = Doubles(inputs[0]), scale = Doubles(inputs[1]),
                            ct = Doubles(inputs[2]);
  const RmsNormGradients want = RmsNormBackwardReference(x, scale, ct, kEps);
  // Largest values: y and dx about 4, which bf16 rounds by at most 2^-7.
  const double rounding = inputs[0].dtype() == DType::kBF16 ? 1.0 / 128 : 0;
  const double rows = static_cast<double>(x.size()) / static_cast<double>(scale.size());
  ExpectNear(results[0], RmsNormReference(x, scale, kEps), 4 * kTolerance + rounding, "y");
  ExpectNear(results[1], want.dx, 8 * kTolerance + rounding, "dx");
  ExpectNear(results[2], want.dscale, kTolerance * rows, "dscale");
}

TEST_P(RmsNormCallTest, EqualsItsTwin) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Shape& shape : {Shape{1, 1, 64}, Shape{3, 7}, Shape{4, 100, 256}}) {
      const TensorType x{dtype, shape}, scale{DType::kF32, {shape.dim(-1)}};
      const std::vector<HostTensor> inputs = Inputs(x, scale);
      const auto results = pjrt::RunOnce(ClientOf(1), ForwardAndBackward(x, scale), inputs);
      ASSERT_TRUE(results.ok()) << results.status().ToString();
      ExpectTwin(inputs, *results);
    }
  }
}

TEST_P(RmsNormCallTest, SameBitsWhateverTheNumberOfDevicesInTheClient) {
  const TensorType x{DType::kF32, {500, 96}}, scale{DType::kF32, {96}};
  const std::vector<HostTensor> inputs = Inputs(x, scale);
  const auto one = pjrt::RunOnce(ClientOf(1), ForwardAndBackward(x, scale), inputs);
  const auto eight =
      pjrt::RunOnce(ClientOf(8), ForwardAndBackward(x, scale), inputs);  // a larger pool
  ASSERT_TRUE(one.ok() && eight.ok()) << one.status().ToString() << eight.status().ToString();
  for (size_t i = 0; i < one->size(); ++i)
    EXPECT_TRUE(std::ranges::equal((*one)[i].bytes(), (*eight)[i].bytes())) << "result " << i;
}

TEST_P(RmsNormCallTest, RunsInsideALoop) {
  const TensorType x{DType::kF32, {6, 40}}, scale{DType::kF32, {40}};
  const std::string t = Tensor(x);
  const Program program{.name = "loop",
                        .text = "module @loop {\n  func.func public @main(%x: " + t +
                                ", %scale: " + Tensor(scale) + ") -> " + t +
                                " {\n    %zero = stablehlo.constant dense<0> : tensor<i32>\n    "
                                "%one = stablehlo.constant dense<1> : tensor<i32>\n"
                                "    %n = stablehlo.constant dense<50> : tensor<i32>\n    %w:2 = "
                                "stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, " +
                                t +
                                "\n    cond {\n      %c = stablehlo.compare LT, %i, %n, SIGNED : "
                                "(tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                                "      stablehlo.return %c : tensor<i1>\n    } do {\n      %i1 = "
                                "stablehlo.add %i, %one : tensor<i32>\n      %y = " +
                                ForwardText("%v, %scale", x, scale) +
                                "\n      %s = stablehlo.add %y, %x : " + t +
                                "\n      stablehlo.return %i1, %s : tensor<i32>, " + t +
                                "\n    }\n    return %w#1 : " + t + "\n  }\n}",
                        .mesh = {},
                        .arguments = {Argument("x", x), Argument("scale", scale)},
                        .results = {Argument("y", x)},
                        .custom_calls = {"ulmus_rms_norm"}};
  std::vector<HostTensor> inputs = Inputs(x, scale);
  inputs.pop_back();
  const auto results = pjrt::RunOnce(ClientOf(1), program, inputs);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  const std::vector<double> start = Doubles(inputs[0]), scales = Doubles(inputs[1]);
  std::vector<double> want = start;
  for (int step = 0; step < 50; ++step) {
    want = RmsNormReference(want, scales, kEps);
    for (size_t i = 0; i < want.size(); ++i) want[i] += start[i];
  }
  ExpectNear(results->front(), want, 1e-4,
             "after 50 steps");  // errors of 50 steps add up, halved by each norm
}

// Rows cut over eight devices, kernels on each device's block; dscale summed across devices.
Program Sharded(const TensorType& x, const TensorType& local, const TensorType& scale) {
  const Mesh mesh({{"data", 2}, {"fsdp", 4}});
  const Sharding rows{{{"data", "fsdp"}, {}}};
  const std::string s = "[{\"data\", \"fsdp\"}, {}]",
                    arg = " {sdy.sharding = #sdy.sharding<@mesh, " + s + ">}",
                    whole = " {sdy.sharding = #sdy.sharding<@mesh, [{}]>}", l = Tensor(local),
                    w = Tensor(scale);
  Program program{
      .name = "sharded",
      .text =
          "module @sharded {\n  sdy.mesh @mesh = <[\"data\"=2, \"fsdp\"=4]>\n  func.func public "
          "@main(%x: " +
          Tensor(x) + arg + ", %scale: " + w + whole + ", %ct: " + Tensor(x) + arg + ") -> (" +
          Tensor(x) + arg + ", " + Tensor(x) + arg + ", " + w + whole +
          ") {\n    %m:3 = sdy.manual_computation(%x, %scale, %ct) in_shardings=[<@mesh, " + s +
          ">, <@mesh, [{}]>, <@mesh, " + s + ">] out_shardings=[<@mesh, " + s + ">, <@mesh, " + s +
          ">, <@mesh, [{}]>] manual_axes={\"data\", \"fsdp\"} (%lx: " + l + ", %ls: " + w +
          ", %lct: " + l + ") {\n      %y = " + ForwardText("%lx, %ls", local, scale) +
          "\n      %d:2 = " + BackwardText("%lx, %ls, %lct", local, scale) +
          "\n      %sum = \"stablehlo.all_reduce\"(%d#1) <{channel_handle = "
          "#stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3, "
          "4, 5, 6, 7]]> : tensor<1x8xi64>, "
          "use_global_device_ids}> ({\n      ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n        %c = "
          "stablehlo.add %a, %b : "
          "tensor<f32>\n        stablehlo.return %c : tensor<f32>\n      }) : (" +
          w + ") -> " + w + "\n      sdy.return %y, %d#0, %sum : " + l + ", " + l + ", " + w +
          "\n    } : (" + Tensor(x) + ", " + w + ", " + Tensor(x) + ") -> (" + Tensor(x) + ", " +
          Tensor(x) + ", " + w + ")\n    return %m#0, %m#1, %m#2 : " + Tensor(x) + ", " +
          Tensor(x) + ", " + w + "\n  }\n}",
      .mesh = mesh,
      .arguments = {Argument("x", x), Argument("scale", scale), Argument("ct", x)},
      .results = {Argument("y", x), Argument("dx", x), Argument("dscale", scale)},
      .custom_calls = {"ulmus_rms_norm", "ulmus_rms_norm_backward"}};
  for (ProgramValue* value :
       {&program.arguments[0], &program.arguments[2], &program.results[0], &program.results[1]})
    value->sharding = rows;
  return program;
}

TEST_P(RmsNormCallTest, RunsOnEachBlockOfEightDevices) {
  const TensorType x{DType::kF32, {800, 256}}, local{DType::kF32, {100, 256}},
      scale{DType::kF32, {256}};
  const std::vector<HostTensor> inputs = Inputs(x, scale);
  for (int repeat = 0; repeat < 20; ++repeat) {  // all eight handlers share one pool
    const auto results = pjrt::RunOnce(ClientOf(8), Sharded(x, local, scale), inputs);
    ASSERT_TRUE(results.ok()) << results.status().ToString();
    ExpectTwin(inputs, *results);
    if (repeat > 0) continue;
    // Rows do not know of each other, so cutting them changes no bit.
    const auto one = pjrt::RunOnce(ClientOf(1), ForwardAndBackward(x, scale), inputs);
    ASSERT_TRUE(one.ok()) << one.status().ToString();
    for (const size_t i : {0, 1})
      EXPECT_TRUE(std::ranges::equal((*one)[i].bytes(), (*results)[i].bytes())) << "result " << i;
  }
}

struct BadCall {
  const char* name;
  TensorType x, scale;
  std::string eps, message;
};

TEST_P(RmsNormCallTest, WrongTypesAreNamedInTheError) {
  const std::string eps = "eps = 1.0e-6 : f32";
  const BadCall calls[] = {
      {"integers",
       {DType::kI32, {2, 8}},
       {DType::kF32, {8}},
       eps,
       "ulmus_rms_norm: x is i32[2,8], expected f32[..., width] or bf16[..., width]"},
      {"scalar",
       {DType::kF32, {}},
       {DType::kF32, {1}},
       eps,
       "ulmus_rms_norm: x is f32[], expected f32[..., width] or bf16[..., width]"},
      {"scale of another width",
       {DType::kF32, {2, 8}},
       {DType::kF32, {4}},
       eps,
       "ulmus_rms_norm: scale is f32[4], expected f32[8]"},
      {"scale in bf16",
       {DType::kBF16, {2, 8}},
       {DType::kBF16, {8}},
       eps,
       "ulmus_rms_norm: scale is bf16[8], expected f32[8]"},
      {"eps of another type",
       {DType::kF32, {2, 8}},
       {DType::kF32, {8}},
       "eps = 1 : i64",
       "expected F32 but got S64"},
      {"eps missing",
       {DType::kF32, {2, 8}},
       {DType::kF32, {8}},
       "",
       "Wrong number of attributes: expected 1 but got 0"},
  };
  for (const BadCall& call : calls) {
    const Program program{
        .name = "bad",
        .text = "module @bad {\n  func.func public @main(%x: " + Tensor(call.x) +
                ", %scale: " + Tensor(call.scale) + ") -> " + Tensor(call.x) +
                " {\n    %y = " + ForwardText("%x, %scale", call.x, call.scale, call.eps) +
                "\n    return %y : " + Tensor(call.x) + "\n  }\n}",
        .mesh = {},
        .arguments = {Argument("x", call.x), Argument("scale", call.scale)},
        .results = {Argument("y", call.x)},
        .custom_calls = {"ulmus_rms_norm"}};
    std::vector<HostTensor> inputs;
    inputs.emplace_back(call.x);
    inputs.emplace_back(call.scale);
    const auto results = pjrt::RunOnce(ClientOf(1), program, inputs);
    ASSERT_FALSE(results.ok()) << call.name;
    EXPECT_THAT(results.error().message(), HasSubstr(call.message)) << call.name;
  }
}

TEST_P(RmsNormCallTest, AnUnregisteredKernelFailsToCompileByName) {
  const TensorType x{DType::kF32, {2, 8}}, scale{DType::kF32, {8}};
  Program program = ForwardAndBackward(x, scale);
  const size_t at = program.text.find("@ulmus_rms_norm(");
  program.text.replace(at, 15, "@ulmus_no_such_kernel");
  program.custom_calls.emplace_back("ulmus_no_such_kernel");
  const auto compiled = ClientOf(1).Compile(program);
  EXPECT_EQ(compiled.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(compiled.status().message(),
              AllOf(HasSubstr("'ulmus_no_such_kernel'"), HasSubstr("RegisterCustomCalls")));
  program.custom_calls.clear();  // not declared: the plugin itself must say so
  EXPECT_THAT(ClientOf(1).Compile(program).status().message(), HasSubstr("ulmus_no_such_kernel"));
}

}  // namespace
}  // namespace ulmus::kernels
