#include "pjrt/client.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "pjrt/c_api.h"

namespace ulmus::pjrt {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Result<PJRT_Client*> CreateHandle(const Plugin& plugin,
                                  const std::map<std::string, OptionValue>& options) {
  const std::vector<PJRT_NamedValue> values = NamedValues(options);
  auto args = MakeArgs<PJRT_Client_Create_Args>();
  args.create_options = values.data();
  args.num_options = values.size();
  TRY(Call<&PJRT_Api::PJRT_Client_Create>(plugin.api(), args));
  return args.client;
}

// Devices of the partitions, as indices into the client's list.
Result<std::vector<int64_t>> PartitionDevices(const Client& client, const Program& program,
                                              const CompileOptions& options) {
  const int64_t wanted = program.mesh.num_devices();
  std::vector<int64_t> devices = options.devices;
  if (devices.empty()) {
    if (wanted > client.num_devices()) {
      return FailedPreconditionError(
          "program {}: the mesh ({}) needs {} devices, the client has {}; create the client with "
          "more "
          "devices or use a smaller mesh",
          program.name, program.mesh.ToString(), wanted, client.num_devices());
    }
    for (int64_t i = 0; i < wanted; ++i) devices.push_back(i);
  }
  if (static_cast<int64_t>(devices.size()) != wanted) {
    return InvalidArgumentError(
        "program {}: CompileOptions::devices names {} devices, the mesh ({}) needs {}",
        program.name, devices.size(), program.mesh.ToString(), wanted);
  }
  for (const int64_t device : devices) {
    if (device < 0 || device >= client.num_devices() || std::ranges::count(devices, device) != 1) {
      return InvalidArgumentError(
          "program {}: CompileOptions::devices is {}; expected different numbers from 0 to {}",
          program.name, fmt::join(devices, ","), client.num_devices() - 1);
    }
  }
  return devices;
}

// The plugin would say the same, but only after parsing, and not who forgot what.
Result<std::map<std::string, int64_t>> CustomCallVersions(const Plugin& plugin,
                                                          const Program& program) {
  std::map<std::string, int64_t> versions;
  if (program.custom_calls.empty()) return versions;
  const std::map<std::string, int64_t> registered = plugin.custom_calls();
  for (const std::string& target : program.custom_calls) {
    const auto it = registered.find(target);
    if (it == registered.end()) {
      return FailedPreconditionError(
          "program {}: it calls '{}', but no handler of that name is registered with {}; call "
          "RegisterCustomCalls before compiling",
          program.name, target, plugin.path());
    }
    versions[target] = it->second;
  }
  return versions;
}

Result<PJRT_LoadedExecutable*> CompileHandle(const Client& client, const Program& program,
                                             const std::string& options) {
  auto code = MakeArgs<PJRT_Program>();
  std::string text = program.text;  // the C API wants it mutable
  code.code = text.data();
  code.code_size = text.size();
  constexpr std::string_view kFormat = "mlir";
  code.format = kFormat.data();
  code.format_size = kFormat.size();
  auto args = MakeArgs<PJRT_Client_Compile_Args>();
  args.client = client.handle();
  args.program = &code;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  TRY(Call<&PJRT_Api::PJRT_Client_Compile>(client.api(), args)
          .WithContext(fmt::format("compiling {}", program.name)));
  return args.executable;
}

Result<PJRT_LoadedExecutable*> LoadHandle(const Client& client, const std::string& bytes) {
  auto args = MakeArgs<PJRT_Executable_DeserializeAndLoad_Args>();
  args.client = client.handle();
  args.serialized_executable = bytes.data();
  args.serialized_executable_size = bytes.size();
  TRY(Call<&PJRT_Api::PJRT_Executable_DeserializeAndLoad>(client.api(), args));
  return args.loaded_executable;
}

}  // namespace

Result<std::unique_ptr<Client>> Client::Create(std::shared_ptr<Plugin> plugin,
                                               ClientOptions options) {
  // Only CPU plugins make devices to order; others refuse the option, and A and B ignore what they
  // do not know.
  const bool may_be_cpu = plugin->kind() == "cpu" || plugin->kind() == "unknown";
  std::map<std::string, OptionValue> named = options.options;
  const bool count_given = !named.contains("cpu_device_count");
  if (may_be_cpu && options.num_devices > 0 && count_given)
    named["cpu_device_count"] = options.num_devices;
  Result<PJRT_Client*> handle = CreateHandle(*plugin, named);
  if (!handle.ok() && plugin->kind() == "unknown" && count_given) {
    named.erase("cpu_device_count");
    handle = CreateHandle(*plugin, named);
  }
  if (!handle.ok()) return handle.error().WithContext("client of " + plugin->path());
  std::unique_ptr<Client> client(new Client(std::move(plugin), *handle));
  TRY(client->ReadDevices());
  TRY(client->CheckDeviceCount(options));
  return client;
}

Client::~Client() {
  auto args = MakeArgs<PJRT_Client_Destroy_Args>();
  args.client = handle_;
  (void)Call<&PJRT_Api::PJRT_Client_Destroy>(api(), args);
}

Status Client::ReadDevices() {
  auto name = MakeArgs<PJRT_Client_PlatformName_Args>();
  name.client = handle_;
  TRY(Call<&PJRT_Api::PJRT_Client_PlatformName>(api(), name));
  platform_.assign(name.platform_name, name.platform_name_size);
  auto version = MakeArgs<PJRT_Client_PlatformVersion_Args>();
  version.client = handle_;
  TRY(Call<&PJRT_Api::PJRT_Client_PlatformVersion>(api(), version));
  platform_version_.assign(version.platform_version, version.platform_version_size);

  auto list = MakeArgs<PJRT_Client_AddressableDevices_Args>();
  list.client = handle_;
  TRY(Call<&PJRT_Api::PJRT_Client_AddressableDevices>(api(), list));
  std::vector<std::pair<DeviceInfo, PJRT_Device*>> found;
  for (size_t i = 0; i < list.num_addressable_devices; ++i) {
    auto get = MakeArgs<PJRT_Device_GetDescription_Args>();
    get.device = list.addressable_devices[i];
    TRY(Call<&PJRT_Api::PJRT_Device_GetDescription>(api(), get));
    auto id = MakeArgs<PJRT_DeviceDescription_Id_Args>();
    id.device_description = get.device_description;
    TRY(Call<&PJRT_Api::PJRT_DeviceDescription_Id>(api(), id));
    auto process = MakeArgs<PJRT_DeviceDescription_ProcessIndex_Args>();
    process.device_description = get.device_description;
    TRY(Call<&PJRT_Api::PJRT_DeviceDescription_ProcessIndex>(api(), process));
    auto kind = MakeArgs<PJRT_DeviceDescription_Kind_Args>();
    kind.device_description = get.device_description;
    TRY(Call<&PJRT_Api::PJRT_DeviceDescription_Kind>(api(), kind));
    found.push_back(
        {{id.id, process.process_index, std::string(kind.device_kind, kind.device_kind_size)},
         get.device});
  }
  std::ranges::sort(found, {}, [](const auto& entry) { return entry.first.id; });
  for (auto& [info, device] : found) {
    devices_.push_back(std::move(info));
    handles_.push_back(device);
  }
  return {};
}

Status Client::CheckDeviceCount(const ClientOptions& options) const {
  if (num_devices() >= std::max<int64_t>(options.num_devices, 1)) return {};
  const char* remedy = platform_ == "cpu" ? "this CPU plugin does not make as many virtual "
                                            "devices: choose another one (`ulmus devices` "
                                            "lists them) or a smaller mesh"
                                          : "choose a smaller mesh, or a machine with more devices";
  return FailedPreconditionError("plugin {} ({}): found {} devices, wanted {}; {}", plugin_->path(),
                                 platform_, num_devices(),
                                 std::max<int64_t>(options.num_devices, 1), remedy);
}

Result<std::unique_ptr<Executable>> Client::Compile(const Program& program,
                                                    const CompileOptions& options,
                                                    CompilationCache* cache) {
  TRY(ValidateProgram(program));
  const std::map<std::string, int64_t> custom_calls = TRY(CustomCallVersions(*plugin_, program));
  Executable::Options loading;
  loading.devices = TRY(PartitionDevices(*this, program, options));
  loading.max_steps_in_flight = options.max_steps_in_flight;
  std::vector<int64_t> ids;
  for (const int64_t device : loading.devices)
    ids.push_back(devices_[static_cast<size_t>(device)].id);
  const std::string serialized = SerializeCompileOptions(options, platform_, ids);

  if (cache != nullptr && platform_ == "cpu" && loading.devices.size() > 1 &&
      !plugin_->loads_collectives_in_order()) {
    cache->Bypass(program.name, fmt::format("{} may deadlock in the collectives of a program for "
                                            "{} devices that it loads from a cache",
                                            plugin_->path(), loading.devices.size()));
    cache = nullptr;
  }

  const auto start = Clock::now();
  std::string key;
  if (cache != nullptr) {
    key = CacheKey({.plugin_hash = TRY(cache->PluginHash(plugin_->path())),
                    .api_major = plugin_->api_version().first,
                    .api_minor = plugin_->api_version().second,
                    .machine = CpuDescription(),
                    .platform_version = platform_version_,
                    .compile_options = serialized,
                    .environment = CompilerEnvironment(),
                    .custom_calls = custom_calls,
                    .program = program.text});
    if (const std::optional<std::string> bytes = cache->Load(key)) {
      Status refused;
      if (Result<PJRT_LoadedExecutable*> handle = LoadHandle(*this, *bytes); handle.ok()) {
        Executable::Options from_cache = loading;
        from_cache.from_cache = true;
        from_cache.compile_s = SecondsSince(start);
        Result<std::unique_ptr<Executable>> executable =
            Executable::Create(api(), *handle, program, std::move(from_cache));
        if (executable.ok()) return executable;
        refused = executable.error();
      } else {
        refused = handle.error();
      }
      cache->Reject(key, refused.message());
    }
  }
  PJRT_LoadedExecutable* handle = TRY(CompileHandle(*this, program, serialized));
  loading.compile_s = SecondsSince(start);
  std::unique_ptr<Executable> executable =
      TRY(Executable::Create(api(), handle, program, std::move(loading)));
  if (cache != nullptr) {
    // A plugin that cannot serialize simply does not use the cache.
    if (const Result<std::string> bytes = executable->compiled().Serialize(); bytes.ok())
      cache->Store(key, *bytes);
  }
  return executable;
}

}  // namespace ulmus::pjrt
