#include "kernels/table.h"

#include <vector>

#include "kernels/rms_norm_ffi.h"

namespace ulmus::kernels {

std::span<const CustomCallHandler> AllKernels() {
  static const auto& kernels = *new std::vector<CustomCallHandler>{
      RmsNormCall(),
      RmsNormBackwardCall(),
  };
  return kernels;
}

}  // namespace ulmus::kernels
