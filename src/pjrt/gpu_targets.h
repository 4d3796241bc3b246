// GPUs that we can compile for without having one. To add one, add targets/<name>.txtpb; the build
// embeds it.
#pragma once

#include <span>
#include <string_view>

namespace ulmus::pjrt {

struct GpuTarget {
  std::string_view name;    // "h100"
  std::string_view config;  // GpuTargetConfigProto in text format
};

std::span<const GpuTarget> GpuTargets();

}  // namespace ulmus::pjrt
