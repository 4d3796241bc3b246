// The PJRT plugins we know from published wheels. This table is the only place that knows their names and files; to add
// one, add a row.
#pragma once

#include <span>
#include <string_view>

namespace ulmus::pjrt {

struct KnownWheel {
  std::string_view name;  // package
  std::string_view file;  // the plugin inside it, relative to site-packages
  std::string_view kind;  // "cpu", "tpu", "cuda"
};

// In pick order within each kind. Why this order: docs/decisions/0003-default-cpu-plugin.md.
std::span<const KnownWheel> KnownWheels();

// Kind of a plugin file by its name, "unknown" for one that no row names.
std::string_view KindOfPluginFile(std::string_view path);

}  // namespace ulmus::pjrt
