#include "pjrt/testing.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <ostream>

#include "pjrt/wheels.h"

namespace ulmus::pjrt {
namespace {

struct SharedClients {
  std::mutex mutex;
  std::map<std::pair<const Plugin*, int64_t>, std::unique_ptr<Client>> clients;
};

SharedClients& Shared() {
  static SharedClients& shared = *new SharedClients;  // outlives every test's statics
  return shared;
}

Result<Client*> SharedClientOf(std::shared_ptr<Plugin> plugin, int64_t num_devices) {
  SharedClients& shared = Shared();
  const std::lock_guard lock(shared.mutex);
  std::unique_ptr<Client>& client = shared.clients[{plugin.get(), num_devices}];
  if (client == nullptr)
    client = TRY(Client::Create(std::move(plugin), {.num_devices = num_devices, .options = {}}));
  return client.get();
}

}  // namespace

void PrintTo(const PluginCandidate& plugin, std::ostream* os) { *os << plugin.name; }

std::vector<PluginCandidate> KnownCpuPlugins() {
  const std::vector<PluginCandidate> found = FindPlugins();
  std::vector<PluginCandidate> known;
  for (const KnownWheel& wheel : KnownWheels()) {
    if (wheel.kind != "cpu") continue;
    const auto it = std::ranges::find(found, wheel.name, &PluginCandidate::name);
    known.push_back(it != found.end() ? *it
                                      : PluginCandidate{std::string(wheel.name), "", "", "cpu"});
  }
  return known;
}

std::vector<PluginCandidate> InstalledCpuPlugins() {
  std::vector<PluginCandidate> plugins = KnownCpuPlugins();
  std::erase_if(plugins, [](const PluginCandidate& plugin) { return plugin.path.empty(); });
  return plugins;
}

std::string TestName(const PluginCandidate& plugin) {
  std::string name = plugin.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

Result<Client*> SharedClient(const PluginCandidate& plugin, int64_t num_devices) {
  if (plugin.path.empty())
    return NotFoundError("plugin {} is not installed; run `make setup`", plugin.name);
  return SharedClientOf(TRY(Plugin::Load(plugin.path)), num_devices);
}

Result<Client*> SharedDefaultClient(int64_t num_devices) {
  return SharedClientOf(TRY(LoadDefaultCpuPlugin()), num_devices);
}

void ReleaseSharedClients() {
  SharedClients& shared = Shared();
  const std::lock_guard lock(shared.mutex);
  shared.clients.clear();
}

}  // namespace ulmus::pjrt
