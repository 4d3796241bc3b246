#include <fmt/ranges.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <ostream>

#include "pjrt/plugin.h"
#include "pjrt/wheels.h"

namespace ulmus::pjrt {
namespace {

namespace fs = std::filesystem;

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> Glob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

// A folder that may hold plugins. In `wheels` folders each package has a folder of its own.
struct Place {
  std::string folder;
  bool package_folders;
};

std::vector<Place> PlacesToSearch() {
  std::vector<Place> places;
  if (const std::string deps = Env("ULMUS_DEPS_DIR"); !deps.empty())
    places.push_back({deps + "/wheels", true});
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  for (fs::path folder = binary.parent_path(); !error && !folder.empty();
       folder = folder.parent_path()) {
    places.push_back({folder / ".deps/wheels", true});
    if (folder == folder.root_path()) break;
  }
  std::vector<std::string> prefixes;
  if (const std::string venv = Env("VIRTUAL_ENV"); !venv.empty()) prefixes.push_back(venv);
  if (const std::string home = Env("HOME"); !home.empty()) prefixes.push_back(home + "/.local");
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  for (const std::string& prefix : prefixes) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      for (const std::string& found : Glob(prefix + "/lib/python3*/" + packages))
        places.push_back({found, false});
    }
  }
  return places;
}

std::string FileOf(const KnownWheel& wheel, const Place& place) {
  return place.package_folders ? fmt::format("{}/{}/{}", place.folder, wheel.name, wheel.file)
                               : fmt::format("{}/{}", place.folder, wheel.file);
}

std::vector<PluginCandidate> InstalledWheels() {
  std::vector<PluginCandidate> found;
  const std::vector<Place> places = PlacesToSearch();
  for (const KnownWheel& wheel : KnownWheels()) {
    for (const Place& place : places) {
      const std::string path = FileOf(wheel, place);
      std::error_code error;
      if (!fs::is_regular_file(path, error)) continue;
      const bool known = std::ranges::any_of(
          found, [&](const PluginCandidate& c) { return fs::equivalent(c.path, path, error); });
      if (!known)
        found.push_back({std::string(wheel.name), path, place.folder, std::string(wheel.kind)});
    }
  }
  return found;
}

// `value` is a path or the name of a wheel.
PluginCandidate Explicit(const std::string& value, const std::string& origin,
                         const std::vector<PluginCandidate>& wheels) {
  std::error_code error;
  if (value.find('/') == std::string::npos && !fs::exists(value, error)) {
    const auto it = std::ranges::find(wheels, value, &PluginCandidate::name);
    if (it != wheels.end()) return {it->name, it->path, origin, it->kind};
  }
  return {fs::path(value).filename(), value, origin, std::string(KindOfPluginFile(value))};
}

std::string PlacesText() {
  std::vector<std::string> folders;
  for (const Place& place : PlacesToSearch()) folders.push_back(place.folder);
  return fmt::format("{}", fmt::join(folders, ", "));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const PluginCandidate& candidate) {
  return out << candidate.name;
}

std::vector<PluginCandidate> FindPlugins(const DiscoveryOptions& options) {
  const std::vector<PluginCandidate> wheels = InstalledWheels();
  std::vector<PluginCandidate> candidates;
  if (!options.flag.empty()) candidates.push_back(Explicit(options.flag, "flag", wheels));
  if (const std::string env = Env("ULMUS_PJRT_PLUGIN"); !env.empty()) {
    candidates.push_back(Explicit(env, "ULMUS_PJRT_PLUGIN", wheels));
  }
  if (!options.recipe.empty()) candidates.push_back(Explicit(options.recipe, "recipe", wheels));
  for (const PluginCandidate& wheel : wheels) {
    const bool listed = std::ranges::any_of(
        candidates, [&](const PluginCandidate& c) { return c.path == wheel.path; });
    if (!listed) candidates.push_back(wheel);
  }
  return candidates;
}

namespace {

// An explicit candidate must load: of this kind or of one we cannot tell, or of any kind if
// `any_explicit`. Else the first installed wheel of `kind` that loads.
Result<std::shared_ptr<Plugin>> LoadFirst(const std::string& kind, const DiscoveryOptions& options,
                                          bool any_explicit) {
  std::vector<std::string> failures;
  for (const PluginCandidate& candidate : FindPlugins(options)) {
    const bool fits = candidate.kind == kind ||
                      (candidate.IsExplicit() && (any_explicit || candidate.kind == "unknown"));
    if (!fits) continue;
    Result<std::shared_ptr<Plugin>> plugin = Plugin::Load(candidate.path);
    if (plugin.ok()) return plugin;
    if (candidate.IsExplicit())
      return plugin.error().WithContext(fmt::format("plugin named by {}", candidate.origin));
    failures.push_back(plugin.error().message());
  }
  if (!failures.empty())
    return FailedPreconditionError("no {} plugin could be loaded: {}", kind,
                                   fmt::join(failures, "; "));
  return NotFoundError(
      "no {} plugin is installed. Run `make setup`, or name one with --plugin or "
      "ULMUS_PJRT_PLUGIN. Searched: {}",
      kind, PlacesText());
}

}  // namespace

Result<std::shared_ptr<Plugin>> LoadDefaultCpuPlugin(const DiscoveryOptions& options) {
  return LoadFirst("cpu", options, /*any_explicit=*/true);
}

Result<std::shared_ptr<Plugin>> LoadPluginOfKind(const std::string& kind,
                                                 const DiscoveryOptions& options) {
  return LoadFirst(kind, options, /*any_explicit=*/false);
}

}  // namespace ulmus::pjrt
