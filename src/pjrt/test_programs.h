// Small hand-written programs for this module's tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pjrt/client.h"
#include "pjrt/plugin.h"
#include "pjrt/testing.h"
#include "tensor/host_tensor.h"
#include "tensor/program.h"

namespace ulmus::pjrt {

inline HostTensor Floats(Shape shape, const std::vector<float>& values) {
  return HostTensor(std::move(shape), std::span<const float>(values));
}

inline std::vector<float> ValuesOf(const HostTensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

inline ProgramValue Value(std::string name, TensorType type) {
  const int64_t rank = type.shape.rank();
  return {std::move(name), std::move(type), Sharding::Replicated(rank), -1};
}

// out = a * b + c over f32[2,2] (matrix product), one device.
inline Program MultiplyAdd() {
  const TensorType t{DType::kF32, {2, 2}};
  return {.name = "multiply_add",
          .text = R"(module @multiply_add {
  func.func public @main(%a: tensor<2x2xf32>, %b: tensor<2x2xf32>, %c: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.add %0, %c : tensor<2x2xf32>
    return %1 : tensor<2x2xf32>
  }
})",
          .mesh = {},
          .arguments = {Value("a", t), Value("b", t), Value("c", t)},
          .results = {Value("out", t)},
          .custom_calls = {}};
}

// state' = state + 1 with the state donated; also returns the sum of the new state. f32[n], one
// device.
inline Program Counter(int64_t n) {
  const TensorType t{DType::kF32, Shape{n}};
  const std::string tensor = "tensor<" + std::to_string(n) + "xf32>";
  Program program{.name = "counter",
                  .text = "module @counter {\n  func.func public @main(%state: " + tensor +
                          " {tf.aliasing_output = 0 : i32}) -> (" + tensor +
                          ", tensor<f32>) {\n    %one = stablehlo.constant dense<1.0> : " + tensor +
                          "\n    %zero = stablehlo.constant dense<0.0> : tensor<f32>\n    %next = "
                          "stablehlo.add %state, %one : " +
                          tensor +
                          "\n    %sum = stablehlo.reduce(%next init: %zero) applies stablehlo.add "
                          "across dimensions = [0] : (" +
                          tensor + ", tensor<f32>) -> tensor<f32>\n    return %next, %sum : " +
                          tensor + ", tensor<f32>\n  }\n}",
                  .mesh = {},
                  .arguments = {Value("state", t)},
                  .results = {Value("state", t), Value("sum", {DType::kF32, {}})},
                  .custom_calls = {}};
  program.arguments[0].donated_to = 0;
  return program;
}

// y[8,4] = x[8,6] w[6,4]; x rows over "data", w columns over "tensor": y is cut both ways. 8
// devices as data=4 tensor=2.
inline Program ShardedMatmul() {
  const Mesh mesh({{"data", 4}, {"tensor", 2}});
  Program program{.name = "sharded_matmul",
                  .text = R"(module @sharded_matmul {
  sdy.mesh @mesh = <["data"=4, "tensor"=2]>
  func.func public @main(%x: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
                         %w: tensor<6x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tensor"}]>})
      -> (tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {"tensor"}]>},
          tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x6xf32>, tensor<6x4xf32>) -> tensor<8x4xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>
    return %y, %s : tensor<8x4xf32>, tensor<8xf32>
  }
})",
                  .mesh = mesh,
                  .arguments = {{"x", {DType::kF32, {8, 6}}, {{{"data"}, {}}}, -1},
                                {"w", {DType::kF32, {6, 4}}, {{{}, {"tensor"}}}, -1}},
                  .results = {{"y", {DType::kF32, {8, 4}}, {{{"data"}, {"tensor"}}}, -1},
                              {"row_sums", {DType::kF32, {8}}, {{{}}}, -1}},
                  .custom_calls = {}};
  return program;
}

// sum_i (x_i w_i) v_i over f32[64,64], i in 0..kNumChains, 8 devices as data=4 tensor=2. The chains
// are independent and each has an all-reduce over one axis and an all-gather over the other:
// collectives that could start in any order. XLA's CPU runtime runs the operations of a program
// concurrently when there are more than 8 and their arrays exceed 512 bytes.
inline constexpr int kNumChains = 6;
inline Program IndependentCollectives() {
  const TensorType t{DType::kF32, {64, 64}};
  const std::string tensor = "tensor<64x64xf32>";
  Program program{.name = "independent_collectives",
                  .text = "",
                  .mesh = Mesh({{"data", 4}, {"tensor", 2}}),
                  .arguments = {},
                  .results = {},
                  .custom_calls = {}};
  std::string arguments, body;
  const auto argument = [&](const std::string& name, const std::string& row_axis,
                            const std::string& column_axis) {
    const auto axes = [](const std::string& axis) {
      return axis.empty() ? "{}" : fmt::format("{{\"{}\"}}", axis);
    };
    arguments +=
        fmt::format("{}%{}: {} {{sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}}",
                    arguments.empty() ? "" : ", ", name, tensor, axes(row_axis), axes(column_axis));
    Sharding sharding{{{}, {}}};
    if (!row_axis.empty()) sharding.dims[0] = {row_axis};
    if (!column_axis.empty()) sharding.dims[1] = {column_axis};
    program.arguments.push_back({name, t, std::move(sharding), -1});
  };
  for (int i = 0; i < kNumChains; ++i) {
    const std::string reduced = i % 2 == 0 ? "data" : "tensor",
                      gathered = i % 2 == 0 ? "tensor" : "data";
    argument(fmt::format("x{}", i), "", reduced);
    argument(fmt::format("w{}", i), reduced, "");
    argument(fmt::format("v{}", i), "", gathered);
    body += fmt::format(
        "    %p{0} = stablehlo.dot_general %x{0}, %w{0}, contracting_dims = [1] x [0] : ({1}, {1}) "
        "-> {1}\n"
        "    %y{0} = sdy.sharding_constraint %p{0} <@mesh, [{{}}, {{}}]> : {1}\n"
        "    %q{0} = stablehlo.dot_general %y{0}, %v{0}, contracting_dims = [1] x [0] : ({1}, {1}) "
        "-> {1}\n"
        "    %z{0} = sdy.sharding_constraint %q{0} <@mesh, [{{}}, {{}}]> : {1}\n",
        i, tensor);
    if (i > 0)
      body += fmt::format("    %s{0} = stablehlo.add %{1}, %z{0} : {2}\n", i,
                          i == 1 ? "z0" : fmt::format("s{}", i - 1), tensor);
  }
  program.text = fmt::format(
      "module @independent_collectives {{\n  sdy.mesh @mesh = <[\"data\"=4, \"tensor\"=2]>\n  "
      "func.func public @main({0}) -> ({1} "
      "{{sdy.sharding = #sdy.sharding<@mesh, [{{}}, {{}}]>}}) {{\n{2}    return %s{3} : {1}\n  "
      "}}\n}}",
      arguments, tensor, body, kNumChains - 1);
  program.results.push_back(Value("sum", t));
  return program;
}

// A test run once per CPU plugin we support; skips, with a message, for those that are not
// installed.
class EachCpuPlugin : public testing::TestWithParam<PluginCandidate> {
 protected:
  void SetUp() override {
    if (GetParam().path.empty())
      GTEST_SKIP() << GetParam().name << " is not installed; run `make setup`";
  }
  static Client& SharedClientOrDie(int64_t num_devices) {
    Result<Client*> client = SharedClient(GetParam(), num_devices);
    CHECK(client.ok(), "{}", client.status().ToString());
    return **client;
  }
};

inline std::string PluginTestName(const testing::TestParamInfo<PluginCandidate>& info) {
  return TestName(info.param);
}

}  // namespace ulmus::pjrt
