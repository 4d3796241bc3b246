// For tests of any module: the CPU plugins of this machine and clients that tests share. No test
// framework in here.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "pjrt/client.h"
#include "pjrt/plugin.h"

namespace ulmus::pjrt {

// The CPU plugins that are installed, in pick order.
std::vector<PluginCandidate> InstalledCpuPlugins();

// Every CPU wheel we support; `path` is empty for those that are not installed, so that a test with
// this list as parameter can skip with a message instead of silently having fewer cases.
std::vector<PluginCandidate> KnownCpuPlugins();

// The plugin's name as a test name may be spelled: "xla_cpu_pjrt". For the suffix of parameterised
// tests:
//   [](const auto& info) { return pjrt::TestName(info.param); }
std::string TestName(const PluginCandidate& plugin);

// For messages of parameterised tests, which find it by this name.
void PrintTo(const PluginCandidate& plugin, std::ostream* os);

// A client with `num_devices` virtual devices, made at the first call and kept until the process
// ends. kNotFound if the plugin is not installed.
Result<Client*> SharedClient(const PluginCandidate& plugin, int64_t num_devices = 1);

// The same on the default CPU plugin: for tests of numbers, which any plugin may compute.
Result<Client*> SharedDefaultClient(int64_t num_devices = 1);

// Ends the shared clients. tests/release_clients.cc calls it after the last test: a worker thread
// of a client that outlived main would use what the plugin's exit handlers have destroyed.
void ReleaseSharedClients();

}  // namespace ulmus::pjrt
