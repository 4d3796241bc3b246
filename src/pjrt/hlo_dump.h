// Optimized HLO as text, by the compiler's own dump files.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"
#include "pjrt/compile_options.h"

namespace ulmus::pjrt {

// Calls `compile` with `options` plus dump options and returns the text of the largest module after
// optimization. kNotFound if the compiler wrote none.
Result<std::string> ReadHloDump(CompileOptions options,
                                const std::function<Status(const CompileOptions&)>& compile);

}  // namespace ulmus::pjrt
