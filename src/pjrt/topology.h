// Compiling for hardware that is not here: a topology is the description of a machine by name. What
// comes out cannot be run, but tells memory, cost and the optimized program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "pjrt/compile_options.h"
#include "pjrt/executable.h"
#include "pjrt/handles.h"
#include "pjrt/plugin.h"
#include "tensor/program.h"

namespace ulmus::pjrt {

// A program compiled ahead of time.
class AotExecutable {
 public:
  AotExecutable(CompiledProgram compiled, MemoryStats memory_stats, double compile_s)
      : compiled_(std::move(compiled)), memory_stats_(memory_stats), compile_s_(compile_s) {}

  // Per device; host_* are bytes that the program keeps in host memory.
  MemoryStats memory_stats() const { return memory_stats_; }
  double compile_s() const { return compile_s_; }
  // Cost, serialized bytes, optimized program, fingerprint.
  const CompiledProgram& compiled() const { return compiled_; }
  Result<int64_t> ComputeSerializedBytes() const;

 private:
  CompiledProgram compiled_;
  MemoryStats memory_stats_;
  double compile_s_;
};

class Topology {
 public:
  // `name` as the plugin knows it: "v5p:2x2x1", "tpu7x:4x8x8"; options e.g. {"num_slices", 2}.
  // Names and options that the plugin does not know are its error.
  static Result<std::unique_ptr<Topology>> Create(
      std::shared_ptr<Plugin> plugin, const std::string& name,
      const std::map<std::string, OptionValue>& options = {});
  // GPUs described by a GpuTargetConfigProto in text format; `shape` is slices x hosts x devices
  // per host: "1x1x8".
  static Result<std::unique_ptr<Topology>> CreateGpu(std::shared_ptr<Plugin> plugin,
                                                     const std::string& target_config,
                                                     const std::string& shape);
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  ~Topology();

  const std::string& name() const { return name_; }
  int64_t num_devices() const { return num_devices_; }
  int64_t num_processes() const { return num_processes_; }
  const std::string& device_kind() const { return device_kind_; }  // "TPU v5"
  // Memory a program may use per device, 0 if the plugin does not say.
  int64_t device_memory_bytes() const { return device_memory_bytes_; }
  const Plugin& plugin() const { return *plugin_; }

  // Errors as Client::Compile; kResourceExhausted when the compiler finds that the program does not
  // fit the device.
  Result<AotExecutable> Compile(const Program& program, const CompileOptions& options = {}) const;

 private:
  Topology(std::shared_ptr<Plugin> plugin, PJRT_TopologyDescription* handle, std::string name)
      : plugin_(std::move(plugin)), handle_(handle), name_(std::move(name)) {}
  Status ReadDevices();

  std::shared_ptr<Plugin> plugin_;
  PJRT_TopologyDescription* handle_;
  std::string name_;
  int64_t num_devices_ = 0, num_processes_ = 0, device_memory_bytes_ = 0;
  std::string device_kind_;
};

// The topology of that name with the plugin that knows it: GPUs of gpu_targets.h ("h100:1x1x8"),
// else TPUs ("v5p:2x2x1").
Result<std::unique_ptr<Topology>> FindTopology(
    const std::string& name, const std::map<std::string, OptionValue>& options = {},
    const DiscoveryOptions& discovery = {});

// As pjrt/run.h has for clients.
Result<std::string> DumpOptimizedHlo(const Topology& topology, const Program& program,
                                     CompileOptions options = {});

}  // namespace ulmus::pjrt
