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
  EXPECT_THAT(message([](Program& p) { p.arguments[0].donated_to = 2; }), HasSubstr("donated to result 2, but there are 2"));
  EXPECT_THAT(message([](Program& p) { p.arguments[0].donated_to = 1; }), HasSubstr("f32[8] [{}]) is donated to result 'sum' (f32[]"));
  EXPECT_THAT(message([](Program& p) { p.arguments.push_back(p.arguments[0]); }), HasSubstr("two arguments are donated to result 'state'"));
  EXPECT_THAT(message([](Program& p) { p.arguments[0].sharding = {{{"nowhere"}}}; }), HasSubstr("argument 'state' (f32[8])"));
}

TEST(SerializeCompileOptions, HoldsAssignmentPartitioningAndOverrides) {
  CompileOptions options;
  options.overrides = {{"a_bool", false}, {"b_int", int64_t{-3}}, {"c_double", 0.5}, {"d_text", std::string("x")}};
  options.default_overrides = false;
  xla::CompileOptionsProto proto;
  ASSERT_TRUE(proto.ParseFromString(SerializeCompileOptions(options, "cpu", {3, 1})));
  const auto& build = proto.executable_build_options();
  EXPECT_EQ(build.num_replicas(), 1);
  EXPECT_EQ(build.num_partitions(), 2);
  EXPECT_TRUE(build.use_spmd_partitioning());
  EXPECT_TRUE(build.use_shardy_partitioner());
  ASSERT_EQ(build.device_assignment().computation_devices_size(), 2);
  EXPECT_THAT(build.device_assignment().computation_devices(0).replica_device_ids(), ElementsAre(3));
  EXPECT_THAT(build.device_assignment().computation_devices(1).replica_device_ids(), ElementsAre(1));
  ASSERT_EQ(proto.env_option_overrides_size(), 4);
  EXPECT_EQ(proto.env_option_overrides(0).value().value_case(), xla::OptionOverrideProto::kBoolField);  // false is present
  EXPECT_EQ(proto.env_option_overrides(1).value().int_field(), -3);
  EXPECT_EQ(proto.env_option_overrides(2).value().double_field(), 0.5);
  EXPECT_EQ(proto.env_option_overrides(3).value().string_field(), "x");
}

TEST(SerializeCompileOptions, TheUsersOverrideBeatsTheDefault) {
  const auto ynn = [](const CompileOptions& options, const std::string& platform) -> std::string {
    xla::CompileOptionsProto proto;
    EXPECT_TRUE(proto.ParseFromString(SerializeCompileOptions(options, platform, {0})));
    for (const auto& entry : proto.env_option_overrides()) {
      if (entry.key() == "xla_cpu_experimental_ynn_fusion_type") return "'" + entry.value().string_field() + "'";
    }
    return "absent";
  };
  CompileOptions options;
  EXPECT_EQ(ynn(options, "cpu"), "''");
  EXPECT_EQ(ynn(options, "tpu"), "absent");
  options.overrides["xla_cpu_experimental_ynn_fusion_type"] = std::string("mine");
  EXPECT_EQ(ynn(options, "cpu"), "'mine'");
  options.overrides.clear();
  options.default_overrides = false;
  EXPECT_EQ(ynn(options, "cpu"), "absent");
}

}  // namespace
}  // namespace ulmus::pjrt
