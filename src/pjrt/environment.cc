#include "pjrt/environment.h"

#include <glob.h>
#include <stdlib.h>

#include <string>

namespace ulmus::pjrt {
namespace {

constexpr int kKeepUserValue = 0;

bool AnyFileMatches(const char* pattern) {
  glob_t found{};
  const bool any = glob(pattern, 0, nullptr, &found) == 0 && found.gl_pathc > 0;
  globfree(&found);
  return any;
}

}  // namespace

bool HasTpuDevices() {
  return AnyFileMatches("/dev/accel[0-9]*") || AnyFileMatches("/dev/vfio/[0-9]*");
}

void SetPluginEnvironment(const EnvironmentOptions& options) {
  setenv("TF_CPP_MIN_LOG_LEVEL", "3", kKeepUserValue);
  if (options.num_threads > 0)
    setenv("PJRT_NPROC", std::to_string(options.num_threads).c_str(), kKeepUserValue);
  if (HasTpuDevices()) return;
  setenv("TPU_SKIP_MDS_QUERY", "1", kKeepUserValue);
  setenv("TPU_WORKER_HOSTNAMES", "localhost", kKeepUserValue);
  setenv("TPU_ACCELERATOR_TYPE", "v5p-8", kKeepUserValue);
  setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", kKeepUserValue);
}

}  // namespace ulmus::pjrt
