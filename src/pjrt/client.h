// A client: the devices of one plugin in this process, and the door to compiling programs for them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "pjrt/cache.h"
#include "pjrt/compile_options.h"
#include "pjrt/executable.h"
#include "pjrt/handles.h"
#include "pjrt/plugin.h"
#include "tensor/program.h"

namespace ulmus::pjrt {

struct ClientOptions {
  // CPU: virtual devices to make. Elsewhere: devices that must be there. 0: whatever the plugin
  // finds.
  int64_t num_devices = 1;
  // Further options of this plugin's client, passed on as they are.
  std::map<std::string, OptionValue> options;
};

struct DeviceInfo {
  int64_t id = 0;  // PJRT's global id
  int64_t process_index = 0;
  std::string kind;  // "cpu", "TPU v5", "NVIDIA H100 80GB HBM3"
};

// Any thread may use a client. It must outlive its executables and arrays.
class Client {
 public:
  // kFailedPrecondition when fewer devices exist than asked for; otherwise what the plugin reports.
  static Result<std::unique_ptr<Client>> Create(std::shared_ptr<Plugin> plugin,
                                                ClientOptions options = {});
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  const Plugin& plugin() const { return *plugin_; }
  const std::string& platform() const { return platform_; }  // "cpu", "tpu", "cuda"
  const std::string& platform_version() const { return platform_version_; }
  // Devices this process can use, by ascending id. "Device i" of this module is an index into this
  // list.
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  int64_t num_devices() const { return static_cast<int64_t>(devices_.size()); }

  // Compiles `program`, or loads it from `cache`. A program for several devices of a CPU plugin
  // that loads them in a way that can deadlock (Plugin::loads_collectives_in_order) is compiled
  // anew and not stored. Errors: kInvalidArgument for text, options, shardings or donations that do
  // not hold together; kFailedPrecondition for a custom call that nobody registered or a mesh with
  // more devices than there are; kInternal when the plugin's outputs differ from Program::results.
  Result<std::unique_ptr<Executable>> Compile(const Program& program,
                                              const CompileOptions& options = {},
                                              CompilationCache* cache = nullptr);

  PJRT_Client* handle() const { return handle_; }
  PJRT_Device* device_handle(int64_t index) const { return handles_[static_cast<size_t>(index)]; }
  const PJRT_Api* api() const { return plugin_->api(); }

 private:
  Client(std::shared_ptr<Plugin> plugin, PJRT_Client* handle)
      : plugin_(std::move(plugin)), handle_(handle) {}
  Status ReadDevices();
  Status CheckDeviceCount(const ClientOptions& options) const;

  std::shared_ptr<Plugin> plugin_;
  PJRT_Client* handle_ = nullptr;
  std::string platform_, platform_version_;
  std::vector<DeviceInfo> devices_;
  std::vector<PJRT_Device*> handles_;
};

}  // namespace ulmus::pjrt
