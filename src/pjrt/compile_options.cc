#include "pjrt/compile_options.h"

#include "pjrt/cache.h"  // CpuDescription
#include "xla_subset.pb.h"

namespace ulmus::pjrt {

bool CpuHasBf16Products() {
  static const bool has = [] {
    const std::string cpu = CpuDescription();
    return cpu.find("avx512_bf16") != std::string::npos ||
           cpu.find("amx_bf16") != std::string::npos;
  }();
  return has;
}

std::map<std::string, OptionValue> DefaultOverrides(const std::string& platform,
                                                    int64_t num_partitions, bool bf16_products) {
  std::map<std::string, OptionValue> overrides;
  if (platform != "cpu") return overrides;
  // Plugins hand every dot to a library (YNN). With bf16 instructions that halves a bf16 block's
  // time; without them it is up to 50 times slower than XLA's own code.
  if (!bf16_products) overrides["xla_cpu_experimental_ynn_fusion_type"] = std::string();
  if (num_partitions > 1) {
    // Virtual devices share cores: a partition may wait long at a collective without being stuck.
    // XLA ends the process after 40 s by default.
    overrides["xla_cpu_collective_call_warn_stuck_seconds"] = int64_t{120};
    overrides["xla_cpu_collective_call_terminate_timeout_seconds"] = int64_t{1800};
  }
  return overrides;
}

std::string SerializeCompileOptions(const CompileOptions& options, const std::string& platform,
                                    const std::vector<int64_t>& device_ids) {
  const auto num_partitions = static_cast<int64_t>(device_ids.size());
  xla::CompileOptionsProto proto;
  xla::ExecutableBuildOptionsProto& build = *proto.mutable_executable_build_options();
  build.set_num_replicas(1);
  build.set_num_partitions(num_partitions);
  build.set_use_spmd_partitioning(num_partitions > 1);
  build.set_use_shardy_partitioner(options.shardy);
  xla::DeviceAssignmentProto& assignment = *build.mutable_device_assignment();
  assignment.set_replica_count(1);
  assignment.set_computation_count(static_cast<int32_t>(num_partitions));
  for (const int64_t id : device_ids)
    assignment.add_computation_devices()->add_replica_device_ids(id);

  std::map<std::string, OptionValue> overrides = options.overrides;
  if (options.default_overrides)
    overrides.merge(DefaultOverrides(platform, num_partitions, CpuHasBf16Products()));
  for (const auto& [key, value] : overrides) {
    xla::OptionOverrideEntry& entry = *proto.add_env_option_overrides();
    entry.set_key(key);
    xla::OptionOverrideProto& v = *entry.mutable_value();
    if (const auto* b = std::get_if<bool>(&value)) v.set_bool_field(*b);
    if (const auto* i = std::get_if<int64_t>(&value)) v.set_int_field(*i);
    if (const auto* d = std::get_if<double>(&value)) v.set_double_field(*d);
    if (const auto* s = std::get_if<std::string>(&value)) v.set_string_field(*s);
  }
  return proto.SerializeAsString();
}

}  // namespace ulmus::pjrt
