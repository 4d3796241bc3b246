#include "pjrt/wheels.h"

namespace ulmus::pjrt {
namespace {

constexpr KnownWheel kWheels[] = {
    {"fastatomstruct-xla-cpu", "fastatomstruct_xla_cpu/libpjrt_cpu.so", "cpu",
     /*loads_collectives_in_order=*/true},
    {"lammps-jax-pjrt-cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "cpu", false},
    {"xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "cpu", false},
    {"jax-cuda13-pjrt", "jax_plugins/xla_cuda13/xla_cuda_plugin.so", "cuda", true},
    {"libtpu", "libtpu/libtpu.so", "tpu", true},
};

std::string_view FileName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

std::span<const KnownWheel> KnownWheels() { return kWheels; }

std::string_view KindOfPluginFile(std::string_view path) {
  for (const KnownWheel& wheel : kWheels) {
    if (FileName(wheel.file) == FileName(path)) return wheel.kind;
  }
  return "unknown";
}

bool LoadsCollectivesInOrder(std::string_view path) {
  for (const KnownWheel& wheel : kWheels) {
    // With its folder: a file name like libpjrt_cpu.so says nothing about who built it.
    if (path.ends_with(wheel.file)) return wheel.loads_collectives_in_order;
  }
  return false;
}

}  // namespace ulmus::pjrt
