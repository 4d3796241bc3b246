// One-off execution: compile, upload, run, download. For tests and small tools.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "pjrt/client.h"
#include "tensor/host_tensor.h"
#include "tensor/program.h"

namespace ulmus::pjrt {

// `args` are global tensors in program order; so are the results.
Result<std::vector<HostTensor>> RunOnce(Client& client, const Program& program,
                                        std::span<const HostTensor> args,
                                        const CompileOptions& options = {});

// The program as HLO text after the compiler's passes, e.g. to count collectives. Compiles it anew
// with dump options into a temporary folder.
Result<std::string> DumpOptimizedHlo(Client& client, const Program& program,
                                     CompileOptions options = {});

}  // namespace ulmus::pjrt
