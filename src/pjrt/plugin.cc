#include "pjrt/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "pjrt/c_api.h"
#include "pjrt/environment.h"
#include "pjrt/wheels.h"

namespace ulmus::pjrt {
namespace {

namespace fs = std::filesystem;

// Functions up to PJRT_Compile have been in every table for years; without them there is nothing to
// drive.
constexpr size_t kSmallestTable = offsetof(PJRT_Api, PJRT_Compile) + sizeof(void*);

std::string KnownNames() {
  std::vector<std::string_view> names;
  for (const KnownWheel& wheel : KnownWheels()) names.push_back(wheel.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// dlopen's own message for a text file or an archive is a riddle; say what the file is.
Status CheckIsSharedLibrary(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return NotFoundError(
        "PJRT plugin '{}': no such file, and no installed wheel of that name (known wheels: {}). "
        "Give the path of a plugin's .so, or run `make setup`",
        path, KnownNames());
  }
  if (!fs::is_regular_file(path, error)) {
    return InvalidArgumentError(
        "PJRT plugin {}: expected a shared library, found a folder or special file", path);
  }
  const auto size = static_cast<int64_t>(fs::file_size(path, error));
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return PermissionDeniedError("PJRT plugin {}: cannot be read; check its permissions", path);
  Elf64_Ehdr header{};
  in.read(reinterpret_cast<char*>(&header), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return InvalidArgumentError(
        "PJRT plugin {}: expected a shared library (ELF), found another kind of file of {} bytes. "
        "Wheels must be unpacked first (`make setup`)",
        path, size);
  }
  // dlopen maps what the header promises and the process dies of SIGBUS where the file ends early.
  int64_t promised = sizeof header;
  for (int i = 0; in && header.e_ident[EI_CLASS] == ELFCLASS64 && i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    in.seekg(static_cast<int64_t>(header.e_phoff) + i * header.e_phentsize);
    in.read(reinterpret_cast<char*>(&segment), sizeof segment);
    if (segment.p_type == PT_LOAD)
      promised = std::max(promised, static_cast<int64_t>(segment.p_offset + segment.p_filesz));
  }
  if (!in || promised > size) {
    return DataLossError(
        "PJRT plugin {}: the file is cut short: found {} bytes, its header promises {}. Unpack the "
        "wheel again "
        "(`make setup`)",
        path, size, promised);
  }
  return {};
}

std::string ValueText(const PJRT_NamedValue& v) {
  switch (v.type) {
    case PJRT_NamedValue_kString:
      return std::string(v.string_value, v.value_size);
    case PJRT_NamedValue_kInt64:
      return std::to_string(v.int64_value);
    case PJRT_NamedValue_kInt64List:
      return fmt::format("{}", fmt::join(std::span(v.int64_array_value, v.value_size), "."));
    case PJRT_NamedValue_kFloat:
      return fmt::format("{}", v.float_value);
    case PJRT_NamedValue_kBool:
      return v.bool_value ? "true" : "false";
  }
  return "";
}

// Loaded plugins by file. Process-wide because a plugin's own state (registered handlers,
// initialisation) is.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Plugin>> plugins;
};
Registry& LoadedPlugins() {
  static Registry& registry = *new Registry;  // never destroyed: plugins outlive static destruction
  return registry;
}

}  // namespace

Plugin::Plugin(std::string path, const PJRT_Api* api)
    : path_(std::move(path)),
      kind_(KindOfPluginFile(path_)),
      loads_collectives_in_order_(LoadsCollectivesInOrder(path_)),
      api_(api),
      api_version_(api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version) {}

Result<std::shared_ptr<Plugin>> Plugin::Load(const std::string& path) {
  TRY(CheckIsSharedLibrary(path));
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  const std::string file = error ? path : canonical.string();

  Registry& registry = LoadedPlugins();
  const std::lock_guard lock(registry.mutex);
  if (const auto it = registry.plugins.find(file); it != registry.plugins.end()) return it->second;

  SetPluginEnvironment();
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPreconditionError(
        "PJRT plugin {}: cannot be loaded: {}. Check that it is complete and made for this machine "
        "and C library",
        path, dlerror());
  }
  const auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) {
    dlclose(library);
    return InvalidArgumentError(
        "PJRT plugin {}: the library has no symbol GetPjrtApi, so it is not a PJRT plugin. "
        "Known wheels: {}",
        path, KnownNames());
  }
  const PJRT_Api* api = get_api();
  if (api == nullptr)
    return InternalError("PJRT plugin {}: GetPjrtApi returned null; expected a function table",
                         path);
  const PJRT_Api_Version& version = api->pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR) {
    return FailedPreconditionError(
        "PJRT plugin {}: found PJRT API version {}.{}, expected {}.x. Use a plugin of API {}.x",
        path, version.major_version, version.minor_version, PJRT_API_MAJOR, PJRT_API_MAJOR);
  }
  if (api->struct_size < kSmallestTable) {
    return FailedPreconditionError(
        "PJRT plugin {}: too old: API {}.{} has a function table of {} bytes, expected at least "
        "{}. "
        "Install a newer plugin (`make setup`)",
        path, version.major_version, version.minor_version, api->struct_size, kSmallestTable);
  }
  std::shared_ptr<Plugin> plugin(new Plugin(file, api));
  if (Status status = plugin->Initialize(); !status.ok())
    return status.WithContext("PJRT plugin " + path);
  registry.plugins[file] = plugin;
  return plugin;
}

Status Plugin::Initialize() {
  auto init = MakeArgs<PJRT_Plugin_Initialize_Args>();
  TRY(Call<&PJRT_Api::PJRT_Plugin_Initialize>(api_, init));
  auto attributes = MakeArgs<PJRT_Plugin_Attributes_Args>();
  if (!Call<&PJRT_Api::PJRT_Plugin_Attributes>(api_, attributes).ok()) return {};  // optional
  for (size_t i = 0; i < attributes.num_attributes; ++i) {
    const PJRT_NamedValue& v = attributes.attributes[i];
    attributes_[std::string(v.name, v.name_size)] = ValueText(v);
  }
  return {};
}

std::map<std::string, int64_t> Plugin::custom_calls() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, int64_t> versions;
  for (const auto& [target, handler] : custom_calls_) versions[target] = handler.version;
  return versions;
}

Status RegisterCustomCalls(const Plugin& plugin, std::span<const CustomCallHandler> handlers) {
  if (handlers.empty()) return {};
  const auto* extension =
      reinterpret_cast<const FfiExtension*>(FindExtension(plugin.api(), kFfiExtensionType));
  if (extension == nullptr || extension->register_handler == nullptr) {
    return UnimplementedError(
        "plugin {} has no FFI extension, so custom calls ({}, ...) cannot be registered; use "
        "another plugin",
        plugin.path(), handlers.front().target);
  }
  constexpr std::string_view kPlatform = "Host";
  const std::lock_guard lock(plugin.mutex_);
  for (const CustomCallHandler& handler : handlers) {
    if (handler.handler == nullptr)
      return InvalidArgumentError("custom call '{}' has no handler", handler.target);
    if (const auto it = plugin.custom_calls_.find(handler.target);
        it != plugin.custom_calls_.end()) {
      if (it->second.handler == handler.handler && it->second.version == handler.version) continue;
      return AlreadyExistsError(
          "custom call '{}' is already registered with another handler (version {}, now {}); a "
          "target "
          "keeps its handler until the process ends",
          handler.target, it->second.version, handler.version);
    }
    FfiRegisterHandlerArgs args{};
    args.struct_size = sizeof args;
    args.target_name = handler.target.data();
    args.target_name_size = handler.target.size();
    args.handler = handler.handler;
    args.platform_name = kPlatform.data();
    args.platform_name_size = kPlatform.size();
    const Status status = TakeError(plugin.api(), extension->register_handler(&args));
    if (!status.ok())
      return status.WithContext(fmt::format("registering custom call '{}'", handler.target));
    plugin.custom_calls_[handler.target] = handler;
  }
  return {};
}

}  // namespace ulmus::pjrt
