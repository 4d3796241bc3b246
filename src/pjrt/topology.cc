#include "pjrt/topology.h"

#include <chrono>
#include <set>

#include "pjrt/c_api.h"
#include "pjrt/gpu_targets.h"
#include "pjrt/hlo_dump.h"

namespace ulmus::pjrt {
namespace {

Result<PJRT_TopologyDescription*> CreateHandle(const Plugin& plugin, const std::string& name,
                                               const std::map<std::string, OptionValue>& options) {
  const std::vector<PJRT_NamedValue> values = NamedValues(options);
  auto args = MakeArgs<PJRT_TopologyDescription_Create_Args>();
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  args.create_options = values.data();
  args.num_options = values.size();
  TRY(Call<&PJRT_Api::PJRT_TopologyDescription_Create>(plugin.api(), args));
  return args.topology;
}

}  // namespace

Result<int64_t> AotExecutable::ComputeSerializedBytes() const {
  return static_cast<int64_t>(TRY(compiled_.Serialize()).size());
}

Result<std::unique_ptr<Topology>> Topology::Create(
    std::shared_ptr<Plugin> plugin, const std::string& name,
    const std::map<std::string, OptionValue>& options) {
  const Result<PJRT_TopologyDescription*> handle = CreateHandle(*plugin, name, options);
  if (!handle.ok()) {
    return handle.error().WithContext(
        fmt::format("topology '{}' of {} (TPU names look like v5p:2x2x1, v6e:4x4, tpu7x:2x2x1)",
                    name, plugin->path()));
  }
  std::unique_ptr<Topology> topology(new Topology(std::move(plugin), *handle, name));
  TRY(topology->ReadDevices());
  return topology;
}

Result<std::unique_ptr<Topology>> Topology::CreateGpu(std::shared_ptr<Plugin> plugin,
                                                      const std::string& target_config,
                                                      const std::string& shape) {
  return Create(std::move(plugin), shape, {{"target_config", target_config}, {"topology", shape}});
}

Topology::~Topology() {
  auto args = MakeArgs<PJRT_TopologyDescription_Destroy_Args>();
  args.topology = handle_;
  (void)Call<&PJRT_Api::PJRT_TopologyDescription_Destroy>(plugin_->api(), args);
}

Status Topology::ReadDevices() {
  const PJRT_Api* api = plugin_->api();
  auto list = MakeArgs<PJRT_TopologyDescription_GetDeviceDescriptions_Args>();
  list.topology = handle_;
  TRY(Call<&PJRT_Api::PJRT_TopologyDescription_GetDeviceDescriptions>(api, list));
  num_devices_ = static_cast<int64_t>(list.num_descriptions);
  std::set<int> processes;
  for (size_t i = 0; i < list.num_descriptions; ++i) {
    auto process = MakeArgs<PJRT_DeviceDescription_ProcessIndex_Args>();
    process.device_description = list.descriptions[i];
    TRY(Call<&PJRT_Api::PJRT_DeviceDescription_ProcessIndex>(api, process));
    processes.insert(process.process_index);
  }
  num_processes_ = static_cast<int64_t>(processes.size());
  if (list.num_descriptions == 0) return {};
  auto kind = MakeArgs<PJRT_DeviceDescription_Kind_Args>();
  kind.device_description = list.descriptions[0];
  TRY(Call<&PJRT_Api::PJRT_DeviceDescription_Kind>(api, kind));
  device_kind_.assign(kind.device_kind, kind.device_kind_size);
  auto attributes = MakeArgs<PJRT_DeviceDescription_Attributes_Args>();
  attributes.device_description = list.descriptions[0];
  TRY(Call<&PJRT_Api::PJRT_DeviceDescription_Attributes>(api, attributes));
  for (size_t i = 0; i < attributes.num_attributes; ++i) {
    const PJRT_NamedValue& v = attributes.attributes[i];
    if (v.type != PJRT_NamedValue_kInt64) continue;
    if (std::string_view(v.name, v.name_size) == "device_memory_bytes_limit")
      device_memory_bytes_ = v.int64_value;
  }
  return {};
}

Result<AotExecutable> Topology::Compile(const Program& program,
                                        const CompileOptions& options) const {
  TRY(ValidateProgram(program));
  const int64_t wanted = program.mesh.num_devices();
  if (wanted > num_devices_) {
    return FailedPreconditionError(
        "program {}: the mesh ({}) needs {} devices, topology {} has {}; choose a larger topology",
        program.name, program.mesh.ToString(), wanted, name_, num_devices_);
  }
  std::vector<int64_t> devices = options.devices;
  for (int64_t i = static_cast<int64_t>(devices.size()); options.devices.empty() && i < wanted; ++i)
    devices.push_back(i);
  if (static_cast<int64_t>(devices.size()) != wanted) {
    return InvalidArgumentError(
        "program {}: CompileOptions::devices names {} devices, the mesh ({}) needs {}",
        program.name, devices.size(), program.mesh.ToString(), wanted);
  }
  const std::string serialized = SerializeCompileOptions(options, plugin_->kind(), devices);
  std::string text = program.text;
  constexpr std::string_view kFormat = "mlir";
  auto code = MakeArgs<PJRT_Program>();
  code.code = text.data();
  code.code_size = text.size();
  code.format = kFormat.data();
  code.format_size = kFormat.size();
  auto args = MakeArgs<PJRT_Compile_Args>();
  args.topology = handle_;
  args.program = &code;
  args.compile_options = serialized.data();
  args.compile_options_size = serialized.size();
  const auto start = std::chrono::steady_clock::now();
  TRY(Call<&PJRT_Api::PJRT_Compile>(plugin_->api(), args)
          .WithContext(fmt::format("compiling {} for {}", program.name, name_)));
  const double compile_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  CompiledProgram compiled(plugin_->api(), args.executable);
  TRY(CheckOutputs(compiled, program));
  const MemoryStats stats = TRY(compiled.ComputeMemoryStats());
  return AotExecutable(std::move(compiled), stats, compile_s);
}

Result<std::unique_ptr<Topology>> FindTopology(const std::string& name,
                                               const std::map<std::string, OptionValue>& options,
                                               const DiscoveryOptions& discovery) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos || colon + 1 == name.size()) {
    return InvalidArgumentError(
        "topology '{}': expected <device>:<shape>, such as v5p:2x2x1, tpu7x:4x8x8 or h100:1x1x8",
        name);
  }
  for (const GpuTarget& target : GpuTargets()) {
    if (target.name != name.substr(0, colon)) continue;
    if (!options.empty())
      return InvalidArgumentError("topology '{}': GPU topologies take no options, found '{}'", name,
                                  options.begin()->first);
    std::shared_ptr<Plugin> plugin = TRY(LoadPluginOfKind("cuda", discovery));
    return Topology::CreateGpu(std::move(plugin), std::string(target.config),
                               name.substr(colon + 1));
  }
  return Topology::Create(TRY(LoadPluginOfKind("tpu", discovery)), name, options);
}

Result<std::string> DumpOptimizedHlo(const Topology& topology, const Program& program,
                                     CompileOptions options) {
  return ReadHloDump(std::move(options), [&](const CompileOptions& dumping) {
    return topology.Compile(program, dumping).status();
  });
}

}  // namespace ulmus::pjrt
