#include "metrics/throughput.h"

#include <array>
#include <charconv>

namespace ulmus::metrics {
namespace {

// The value in bytes of a line "<name>:   1234 kB".
Result<int64_t> KilobyteField(std::string_view text, std::string_view name, const Path& file) {
  const size_t at = text.find(name);
  size_t digits = at == std::string_view::npos ? at : text.find_first_of("0123456789", at);
  int64_t value = 0;
  if (digits == std::string_view::npos ||
      std::from_chars(text.data() + digits, text.data() + text.size(), value).ec != std::errc())
    return NotFoundError("{}: no line \"{}\" with a number of kB", file, name);
  return value * 1024;
}

// "NVIDIA H100 80GB HBM3" is an "NVIDIA H100"; the names of TPUs are whole ("TPU v4 lite" is no
// "TPU v4"). A slice of a GPU has an unknown part of its peak.
bool IsKind(std::string_view device_kind, std::string_view kind) {
  if (!device_kind.starts_with(kind) || device_kind.find(" MIG ") != std::string_view::npos)
    return false;
  const std::string_view rest = device_kind.substr(kind.size());
  return rest.empty() || (kind.starts_with("NVIDIA ") && (rest[0] == ' ' || rest[0] == '-'));
}

}  // namespace

std::span<const DevicePeak> DevicePeaks() {
  // First match wins: longer names stand before those they begin with.
  static constexpr std::array kPeaks = {
      DevicePeak{"TPU v4", 275e12, 0, 32.7e9, "cloud.google.com/tpu/docs/v4: 275 TFLOPS per chip"},
      DevicePeak{"TPU v5 lite", 197e12, 0, 16.9e9,
                 "cloud.google.com/tpu/docs/v5e: 197 TFLOPS per chip"},
      DevicePeak{"TPU v5e", 197e12, 0, 16.9e9,
                 "cloud.google.com/tpu/docs/v5e: 197 TFLOPS per chip"},
      DevicePeak{"TPU v5", 459e12, 0, 102.7e9,
                 "cloud.google.com/tpu/docs/v5p: 459 TFLOPS per chip"},
      DevicePeak{"TPU v5p", 459e12, 0, 102.7e9,
                 "cloud.google.com/tpu/docs/v5p: 459 TFLOPS per chip"},
      DevicePeak{"TPU v6 lite", 918e12, 0, 33.5e9,
                 "cloud.google.com/tpu/docs/v6e: 918 TFLOPS per chip"},
      DevicePeak{"TPU v6e", 918e12, 0, 33.5e9,
                 "cloud.google.com/tpu/docs/v6e: 918 TFLOPS per chip"},
      DevicePeak{"TPU7x", 2307e12 / 2, 0, 101.7e9,
                 "cloud.google.com/tpu/docs/tpu7x: 2307 TFLOPS per chip, which shows as 2 devices"},
      DevicePeak{"NVIDIA A100", 312e12, 19.5e12, 0, "NVIDIA A100 data sheet, without sparsity"},
      DevicePeak{"NVIDIA H100 PCIe", 756.5e12, 51e12, 80e9,
                 "NVIDIA H100 data sheet, PCIe, without sparsity"},
      DevicePeak{"NVIDIA H100 NVL", 835.5e12, 60e12, 94e9,
                 "NVIDIA H100 data sheet, NVL, without sparsity"},
      DevicePeak{"NVIDIA H100", 989.5e12, 67e12, 80e9,
                 "NVIDIA H100 data sheet, SXM, without sparsity"},
      DevicePeak{"NVIDIA H200 NVL", 835.5e12, 60e12, 141e9,
                 "NVIDIA H200 data sheet, NVL, without sparsity"},
      DevicePeak{"NVIDIA H200", 989.5e12, 67e12, 141e9,
                 "NVIDIA H200 data sheet, SXM, without sparsity"},
      DevicePeak{"NVIDIA B200", 2.25e15, 75e12, 180e9,
                 "NVIDIA Blackwell data sheet, HGX B200 per GPU, without sparsity"},
  };
  return kPeaks;
}

const DevicePeak* FindDevicePeak(std::string_view device_kind) {
  for (const DevicePeak& peak : DevicePeaks())
    if (IsKind(device_kind, peak.kind)) return &peak;
  return nullptr;
}

std::optional<double> Mfu(const MfuInput& input) {
  const double peak = static_cast<double>(input.num_devices) * input.peak_flops_per_s;
  const double done = input.tokens_per_s * input.flops_per_token;
  if (!(peak > 0) || !(done > 0)) return std::nullopt;
  return done / peak;
}

Result<int64_t> ReadMachineMemory(const Path& meminfo_file) {
  return KilobyteField(TRY(ReadFile(meminfo_file)), "MemTotal:", meminfo_file);
}

Result<MemoryUse> ReadMemoryUse(const Path& status_file) {
  const std::string text = TRY(ReadFile(status_file));
  return MemoryUse{.resident_bytes = TRY(KilobyteField(text, "VmRSS:", status_file)),
                   .peak_resident_bytes = TRY(KilobyteField(text, "VmHWM:", status_file))};
}

}  // namespace ulmus::metrics
