// The index of the kernels.
#pragma once

#include <span>

#include "tensor/program.h"  // CustomCallHandler

namespace ulmus::kernels {

// Every kernel, to be given to pjrt::RegisterCustomCalls once per plugin before programs that call
// them are compiled. The list lives as long as the process.
std::span<const CustomCallHandler> AllKernels();

}  // namespace ulmus::kernels
