// Environment variables that plugins read while they are loaded.
#pragma once

#include <cstdint>

namespace ulmus::pjrt {

struct EnvironmentOptions {
  int64_t num_threads =
      0;  // size of the CPU plugin's pools (PJRT_NPROC); 0 leaves it to the plugin: all cores
};

// Sets, without touching what the user has set:
//   TF_CPP_MIN_LOG_LEVEL=3           plugins print every failing call otherwise; the errors come
//   back to us anyway PJRT_NPROC=num_threads           when num_threads > 0
// and, on a machine without TPU devices, what libtpu needs to compile ahead of time:
//   TPU_SKIP_MDS_QUERY=1             else it asks a metadata server for minutes
//   TPU_WORKER_HOSTNAMES=localhost, TPU_ACCELERATOR_TYPE=v5p-8    silence its warnings
//   ALLOW_MULTIPLE_LIBTPU_LOAD=1     its lock file serves the device, which is absent
// Plugin::Load calls it with defaults. Call it first in main when num_threads matters: setenv is
// not thread-safe.
void SetPluginEnvironment(const EnvironmentOptions& options = {});

// True if the machine has TPU device nodes.
bool HasTpuDevices();

}  // namespace ulmus::pjrt
