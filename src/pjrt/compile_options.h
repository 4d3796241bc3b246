// What a program is compiled with, and its encoding for the plugin.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace ulmus::pjrt {

using OptionValue = std::variant<bool, int64_t, double, std::string>;

struct CompileOptions {
  // XLA debug options for this program alone, e.g. {"xla_cpu_enable_fast_math", false}. An unknown
  // name or a bad value is the plugin's error, as kInvalidArgument.
  std::map<std::string, OptionValue> overrides;
  // Adds what DefaultOverrides lists to `overrides` where that does not name the option already.
  bool default_overrides = true;
  // Device of each partition, as indices into Client::devices(); empty means 0, 1, 2, ...
  std::vector<int64_t> devices;
  // Sharding annotations are Shardy's (sdy.*). Off: the older GSPMD partitioner.
  bool shardy = true;
  // Steps that may be running before Execute waits for the oldest.
  int64_t max_steps_in_flight = 2;
};

// True if this CPU multiplies bf16 itself (AVX512-BF16 or AMX). Decides whether library fusions
// pay.
bool CpuHasBf16Products();

// Options that our measurements ask for on a platform ("cpu", "tpu", "cuda"); `bf16_products` is
// CpuHasBf16Products() of the machine that runs the program.
// docs/decisions/0003-default-cpu-plugin.md.
std::map<std::string, OptionValue> DefaultOverrides(const std::string& platform,
                                                    int64_t num_partitions, bool bf16_products);

// CompileOptionsProto bytes, equal for equal input. `device_ids` has one PJRT device id per
// partition.
std::string SerializeCompileOptions(const CompileOptions& options, const std::string& platform,
                                    const std::vector<int64_t>& device_ids);

}  // namespace ulmus::pjrt
