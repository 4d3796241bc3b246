// PJRT plugins: shared libraries that compile and run StableHLO on one kind of hardware. Finding
// and loading them.
#pragma once

#include <iosfwd>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "pjrt/handles.h"
#include "tensor/program.h"  // CustomCallHandler

namespace ulmus::pjrt {

struct PluginCandidate {
  std::string name;  // wheel or file name
  std::string path;
  std::string origin;  // "flag", "ULMUS_PJRT_PLUGIN", "recipe", or the folder it was found in
  std::string kind;    // "cpu", "tpu", "cuda", "unknown"

  // Asked for by name: a failure to load it is an error, never a reason to take another one.
  bool IsExplicit() const {
    return origin == "flag" || origin == "ULMUS_PJRT_PLUGIN" || origin == "recipe";
  }
};

// The name: what GoogleTest prints for a parameter.
std::ostream& operator<<(std::ostream& out, const PluginCandidate& candidate);

struct DiscoveryOptions {
  std::string flag;    // path of a plugin, or name of a known wheel
  std::string recipe;  // same, from the recipe
};

// Every plugin there is, best first: flag, environment variable ULMUS_PJRT_PLUGIN, recipe,
// installed wheels in pick order. Wheels are looked for in $ULMUS_DEPS_DIR/wheels, in .deps/wheels
// beside or above the running binary, and in the site-packages of $VIRTUAL_ENV, ~/.local,
// /usr/local and /usr. An explicit value that is no file and no installed wheel stays in the list
// with that value as path, so that loading it reports the mistake. Files are not opened.
std::vector<PluginCandidate> FindPlugins(const DiscoveryOptions& options = {});

// A loaded plugin. Stays mapped until the process ends: XLA cannot be unloaded. Any thread may use
// it.
class Plugin {
 public:
  // Opens the plugin, or returns the one already opened from this file. Errors:
  //   kNotFound            no such file
  //   kInvalidArgument     not a shared library, or no PJRT plugin (symbol GetPjrtApi missing)
  //   kDataLoss            the file is cut short
  //   kFailedPrecondition  made for another machine or C library; another major API version; too
  //   old for us
  static Result<std::shared_ptr<Plugin>> Load(const std::string& path);

  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  const std::string& path() const { return path_; }
  const std::string& kind() const { return kind_; }  // "cpu", "tpu", "cuda", "unknown"
  std::pair<int, int> api_version() const { return api_version_; }
  // True if programs for several devices run without deadlock after loading them from serialized
  // bytes (wheels.h).
  bool loads_collectives_in_order() const { return loads_collectives_in_order_; }
  // What the plugin says of itself: "xla_version", "stablehlo_current_version", ... Lists print as
  // "1.13.3".
  const std::map<std::string, std::string>& attributes() const { return attributes_; }
  const PJRT_Api* api() const { return api_; }

  // Registered custom-call targets with their versions.
  std::map<std::string, int64_t> custom_calls() const;

 private:
  friend Status RegisterCustomCalls(const Plugin& plugin,
                                    std::span<const CustomCallHandler> handlers);
  Plugin(std::string path, const PJRT_Api* api);
  Status Initialize();

  std::string path_;
  std::string kind_;
  bool loads_collectives_in_order_;
  const PJRT_Api* api_;
  std::pair<int, int> api_version_;
  std::map<std::string, std::string> attributes_;

  mutable std::mutex mutex_;  // guards custom_calls_
  mutable std::map<std::string, CustomCallHandler> custom_calls_;
};

// Makes host functions callable from programs on this plugin's "Host" platform. Registering the
// same handler again does nothing. kUnimplemented if the plugin has no FFI extension,
// kAlreadyExists if the target is taken by another handler. A handler must report an FFI minor
// version that the plugin knows (1 always is): a newer one is dropped silently.
Status RegisterCustomCalls(const Plugin& plugin, std::span<const CustomCallHandler> handlers);

// The plugin to run on: the first candidate asked for by name, of whatever kind, else the first
// installed CPU wheel that loads. kNotFound lists the places searched.
Result<std::shared_ptr<Plugin>> LoadDefaultCpuPlugin(const DiscoveryOptions& options = {});

// The plugin for one kind of hardware, "cpu", "tpu" or "cuda". Candidates asked for by name count
// only if they are of this kind or of one we cannot tell: naming a CPU plugin to run on does not
// change what compiles for a TPU.
Result<std::shared_ptr<Plugin>> LoadPluginOfKind(const std::string& kind,
                                                 const DiscoveryOptions& options = {});

}  // namespace ulmus::pjrt
