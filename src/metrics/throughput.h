// Rates of a step, and what they are compared with: peaks of known devices, memory of this process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace ulmus::metrics {

// Dense peak (no sparsity) of one device as PJRT counts devices; where a chip shows as two devices,
// half of the chip's. 0: the maker publishes none.
struct DevicePeak {
  std::string_view kind;  // the name that PJRT gives; of NVIDIA's, how it begins
  double bf16_flops_per_s = 0;
  double f32_flops_per_s = 0;
  // What a program may use of it. TPUs: device_memory_bytes_limit of libtpu's topologies; NVIDIA:
  // the data sheet's size. 0: the kind comes in several sizes.
  double memory_bytes = 0;
  std::string_view source;  // where the numbers are published
};

std::span<const DevicePeak> DevicePeaks();
// By PJRT's device kind ("TPU v5 lite", "NVIDIA H100 80GB HBM3"); null for a CPU or a device that
// is not in the table, whose MFU is then n/a rather than a guess.
const DevicePeak* FindDevicePeak(std::string_view device_kind);

// MFU = tokens_per_s * flops_per_token / (num_devices * peak_flops_per_s): the model's own
// operations, without recomputation, as a share of what the devices could do. FLOPs per token
// follow one of three conventions (nn/olmo3/flops.h) that differ by up to 1.6: name the one used.
struct MfuInput {
  double tokens_per_s = 0;      // of the whole run, not per device
  double flops_per_token = 0;   // forward and backward
  int64_t num_devices = 0;      // as PJRT counts them
  double peak_flops_per_s = 0;  // of one device, in the type of the matrix products; 0: not known
};
// nullopt if the peak is not known or nothing was done.
std::optional<double> Mfu(const MfuInput& input);

struct MemoryUse {
  int64_t resident_bytes = 0;       // VmRSS
  int64_t peak_resident_bytes = 0;  // VmHWM
};
// Physical memory of this machine, which all of its CPU devices share.
Result<int64_t> ReadMachineMemory(const Path& meminfo_file = "/proc/meminfo");

// Of this process. kNotFound where /proc has no such file.
Result<MemoryUse> ReadMemoryUse(const Path& status_file = "/proc/self/status");

}  // namespace ulmus::metrics
