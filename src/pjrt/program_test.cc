// What is checked of a program and its options before any plugin sees them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pjrt/compile_options.h"
#include "pjrt/executable.h"
#include "pjrt/test_programs.h"
#include "xla_subset.pb.h"

namespace ulmus::pjrt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ValidateProgram, DonationsMustNameOneResultOfTheSameKind) {
  EXPECT_TRUE(ValidateProgram(Counter(8)).ok());
  const auto message = [](auto change) {
    Program program = Counter(8);
    change(program);
    const Status status = ValidateProgram(program);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message([](Program& p) { p.arguments[0].donated_to = 2; }),
              HasSubstr("donated to result 2, but there are 2"));
  EXPECT_THAT(message([](Program& p) { p.arguments[0].donated_to = 1; }),
              HasSubstr("f32[8] [{}]) is donated to result 'sum' (f32[]"));
  EXPECT_THAT(message([](Program& p) { p.arguments.push_back(p.arguments[0]); }),
              HasSubstr("two arguments are donated to result 'state'"));
  EXPECT_THAT(message([](Program& p) { p.arguments[0].sharding = {{{"nowhere"}}}; }),
              HasSubstr("argument 'state' (f32[8])"));
}

TEST(SerializeCompileOptions, HoldsAssignmentPartitioningAndOverrides) {
  CompileOptions options;
  options.overrides = {
      {"a_bool", false}, {"b_int", int64_t{-3}}, {"c_double", 0.5}, {"d_text", std::string("x")}};
  options.default_overrides = false;
  xla::CompileOptionsProto proto;
  ASSERT_TRUE(proto.ParseFromString(SerializeCompileOptions(options, "cpu", {3, 1})));
  const auto& build = proto.executable_build_options();
  EXPECT_EQ(build.num_replicas(), 1);
  EXPECT_EQ(build.num_partitions(), 2);
  EXPECT_TRUE(build.use_spmd_partitioning());
  EXPECT_TRUE(build.use_shardy_partitioner());
  ASSERT_EQ(build.device_assignment().computation_devices_size(), 2);
  EXPECT_THAT(build.device_assignment().computation_devices(0).replica_device_ids(),
              ElementsAre(3));
  EXPECT_THAT(build.device_assignment().computation_devices(1).replica_device_ids(),
              ElementsAre(1));
  ASSERT_EQ(proto.env_option_overrides_size(), 4);
  EXPECT_EQ(proto.env_option_overrides(0).value().value_case(),
            xla::OptionOverrideProto::kBoolField);  // false is present
  EXPECT_EQ(proto.env_option_overrides(1).value().int_field(), -3);
  EXPECT_EQ(proto.env_option_overrides(2).value().double_field(), 0.5);
  EXPECT_EQ(proto.env_option_overrides(3).value().string_field(), "x");
}

constexpr const char* kYnn = "xla_cpu_experimental_ynn_fusion_type";

TEST(DefaultOverrides, LibraryFusionsAreOffWhereTheCpuCannotMultiplyBf16) {
  EXPECT_EQ(DefaultOverrides("cpu", 1, /*bf16_products=*/false).at(kYnn),
            OptionValue(std::string()));
  EXPECT_FALSE(DefaultOverrides("cpu", 1, /*bf16_products=*/true).contains(kYnn));
  EXPECT_TRUE(DefaultOverrides("tpu", 8, false).empty());
  EXPECT_TRUE(DefaultOverrides("cuda", 8, false).empty());
  EXPECT_TRUE(DefaultOverrides("cpu", 8, true)
                  .contains("xla_cpu_collective_call_terminate_timeout_seconds"));
}

TEST(SerializeCompileOptions, TheUsersOverrideBeatsTheDefault) {
  const auto number = [](const CompileOptions& options) -> int64_t {
    xla::CompileOptionsProto proto;
    EXPECT_TRUE(proto.ParseFromString(SerializeCompileOptions(options, "cpu", {0, 1})));
    for (const auto& entry : proto.env_option_overrides()) {
      if (entry.key() == "xla_cpu_collective_call_terminate_timeout_seconds")
        return entry.value().int_field();
    }
    return -1;
  };
  CompileOptions options;
  EXPECT_EQ(number(options), 1800);
  options.overrides["xla_cpu_collective_call_terminate_timeout_seconds"] = int64_t{7};
  EXPECT_EQ(number(options), 7);
  options.overrides.clear();
  options.default_overrides = false;
  EXPECT_EQ(number(options), -1);
}

}  // namespace
}  // namespace ulmus::pjrt
