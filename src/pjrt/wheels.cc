#include "pjrt/wheels.h"

namespace ulmus::pjrt {
namespace {

constexpr KnownWheel kWheels[] = {
    {"lammps-jax-pjrt-cpu", "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "cpu"},
    {"fastatomstruct-xla-cpu", "fastatomstruct_xla_cpu/libpjrt_cpu.so", "cpu"},
    {"xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "cpu"},
    {"jax-cuda13-pjrt", "jax_plugins/xla_cuda13/xla_cuda_plugin.so", "cuda"},
    {"libtpu", "libtpu/libtpu.so", "tpu"},
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

}  // namespace ulmus::pjrt
