// The PJRT plugins we know from published wheels. This table is the only place that knows their
// names and files; to add one, add a row.
#pragma once

#include <span>
#include <string_view>

namespace ulmus::pjrt {

struct KnownWheel {
  std::string_view name;  // package
  std::string_view file;  // the plugin inside it, relative to site-packages
  std::string_view kind;  // "cpu", "tpu", "cuda"
  // False if a program for several devices may deadlock in its collectives once it was loaded from
  // serialized bytes: its devices no longer start independent collectives in one order. Matters on
  // CPU only (docs/formats/executable_cache.md).
  bool loads_collectives_in_order;
};

// In pick order within each kind. Why this order: docs/decisions/0003-default-cpu-plugin.md.
std::span<const KnownWheel> KnownWheels();

// Kind of a plugin file by its name, "unknown" for one that no row names.
std::string_view KindOfPluginFile(std::string_view path);

// KnownWheel::loads_collectives_in_order of a plugin file by its path inside the wheel; false for
// one that no row names.
bool LoadsCollectivesInOrder(std::string_view path);

}  // namespace ulmus::pjrt
