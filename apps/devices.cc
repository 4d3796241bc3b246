// `ulmus devices`: the plugins found, what they offer, or why they do not work. Each plugin is
// opened in a child process, so that one that crashes or hangs is a line in the report.
#include <cstring>

#include <nlohmann/json.hpp>

#include "apps/child_process.h"
#include "apps/commands.h"
#include "pjrt/client.h"
#include "pjrt/environment.h"
#include "pjrt/plugin.h"

namespace ulmus::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kAllDevices = 0;

Json DevicesOf(const pjrt::Client& client) {
  Json devices = Json::array();
  for (const pjrt::DeviceInfo& device : client.devices()) {
    devices.push_back(
        {{"id", device.id}, {"kind", device.kind}, {"process", device.process_index}});
  }
  return devices;
}

// What the child finds out. Fields of a plugin that loads but has no hardware stay beside the
// error.
Json Probe(const std::string& path) {
  Json report;
  const Result<std::shared_ptr<pjrt::Plugin>> plugin = pjrt::Plugin::Load(path);
  if (!plugin.ok()) {
    report["error"] = plugin.error().message();
    return report;
  }
  const auto [major, minor] = (*plugin)->api_version();
  report["api_version"] = fmt::format("{}.{}", major, minor);
  report["kind"] = (*plugin)->kind();
  if (const auto it = (*plugin)->attributes().find("stablehlo_current_version");
      it != (*plugin)->attributes().end()) {
    report["stablehlo"] = it->second;
  }
  const bool virtual_devices = (*plugin)->kind() == "cpu";
  Result<std::unique_ptr<pjrt::Client>> client = pjrt::Client::Create(
      *plugin, {.num_devices = virtual_devices ? 1 : kAllDevices, .options = {}});
  if (!client.ok()) {
    report["error"] = client.error().message();
    return report;
  }
  report["platform"] = (*client)->platform();
  report["devices"] = DevicesOf(**client);
  return report;
}

Json ProbeInChild(const pjrt::PluginCandidate& candidate, double timeout_s) {
  const auto child = RunSelf({"devices-probe", candidate.path}, timeout_s, /*quiet=*/true);
  if (!child.ok()) return {{"error", child.error().message()}};
  if (child->timed_out)
    return {
        {"error", fmt::format("no answer within {} s: it was stopped (--timeout-s gives it more)",
                              timeout_s)}};
  if (child->signal != 0) {
    return {{"error", fmt::format("it crashed its process with signal {} ({}); the file may be "
                                  "damaged or made for another CPU",
                                  child->signal, strsignal(child->signal))}};
  }
  Json report = Json::parse(child->output, nullptr, /*allow_exceptions=*/false);
  if (report.is_object()) return report;
  return {{"error", fmt::format("its process ended with code {} and no answer", child->exit_code)}};
}

// Compiling ahead of time needs no device, so a plugin without hardware is not broken.
std::string Note(const Json& report) {
  const std::string kind = report.value("kind", "");
  if (!report.contains("error") || !report.contains("api_version") ||
      (kind != "tpu" && kind != "cuda"))
    return "";
  return "no device here, but usable to compile ahead of time";
}

void Print(const Json& plugin) {
  fmt::print("\n{}\n  path        {}\n  found by    {}\n", plugin.value("name", ""),
             plugin.value("path", ""), plugin.value("origin", ""));
  if (plugin.contains("api_version")) {
    fmt::print("  PJRT API    {}{}\n", plugin.value("api_version", ""),
               plugin.contains("stablehlo") ? ", StableHLO " + plugin.value("stablehlo", "") : "");
  }
  if (plugin.contains("devices")) {
    const Json& devices = plugin["devices"];
    if (plugin.value("platform", "") == "cpu") {
      fmt::print("  platform    cpu, with as many virtual devices as a run asks for\n");
    } else {
      fmt::print("  platform    {}, {} device{}\n", plugin.value("platform", ""), devices.size(),
                 devices.size() == 1 ? "" : "s");
      for (const Json& device : devices)
        fmt::print("    {}: {}\n", device.value("id", 0), device.value("kind", ""));
    }
  }
  // With a note the plugin is in order: what its client said is the reason, not a fault.
  if (plugin.contains("note")) fmt::print("  note        {}\n", plugin.value("note", ""));
  if (plugin.contains("error"))
    fmt::print("  {} {}\n", plugin.contains("note") ? "reason     " : "error      ",
               plugin.value("error", ""));
}

// The plugin that a run takes: one asked for by name, working or not, else the first CPU plugin
// that works.
const Json* Default(const Json& plugins) {
  for (const Json& plugin : plugins) {
    if (plugin.value("explicit", false)) return &plugin;
    if (plugin.value("platform", "") == "cpu") return &plugin;
  }
  return nullptr;
}

void PrintAll(const Json& plugins) {
  if (const Json* chosen = Default(plugins)) {
    fmt::print("Runs use {} ({}){}; --plugin or ULMUS_PJRT_PLUGIN names another one.\n",
               chosen->value("name", ""), chosen->value("path", ""),
               chosen->contains("error") ? ", which does not work" : "");
  } else {
    fmt::print("No plugin here can run programs; `make setup` installs one for the CPU.\n");
  }
  for (const Json& plugin : plugins) Print(plugin);
}

struct Options {
  std::string plugin;
  bool json = false;
  double timeout_s = 60;
};

int RunDevices(const Options& options) {
  Json plugins = Json::array();
  bool explicit_failed = false;
  for (const pjrt::PluginCandidate& candidate :
       pjrt::FindPlugins({.flag = options.plugin, .recipe = ""})) {
    Json plugin = {{"name", candidate.name},
                   {"path", candidate.path},
                   {"origin", candidate.origin},
                   {"explicit", candidate.IsExplicit()}};
    plugin.update(ProbeInChild(candidate, options.timeout_s));
    if (std::string note = Note(plugin); !note.empty()) plugin["note"] = note;
    explicit_failed = explicit_failed || (candidate.IsExplicit() && plugin.contains("error"));
    plugins.push_back(std::move(plugin));
  }
  if (options.json) {
    const Json* chosen = Default(plugins);
    const Json report = {{"default", chosen == nullptr ? Json() : chosen->at("path")},
                         {"plugins", plugins}};
    fmt::print("{}\n", report.dump(2, ' ', false, Json::error_handler_t::replace));
  } else if (!plugins.empty()) {
    PrintAll(plugins);
  }
  if (plugins.empty()) return Fail(pjrt::LoadDefaultCpuPlugin().status());
  return explicit_failed ? kExitFailure : kExitOk;
}

}  // namespace

void AddDevices(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand(
      "devices", "Plugins found, API versions, devices, and why a lookup failed");
  const auto options = std::make_shared<Options>();
  command->add_option(
      "--plugin", options->plugin,
      "Path of a PJRT plugin, or name of an installed wheel; its failure is an error");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_option("--timeout-s", options->timeout_s, "Seconds to wait for each plugin")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->footer(
      "Example: ulmus devices --plugin ./pjrt_c_api_cpu_plugin.so\n"
      "Searched, best first: --plugin, ULMUS_PJRT_PLUGIN, ULMUS_DEPS_DIR/wheels, .deps/wheels "
      "beside or above this\n"
      "program, site-packages of VIRTUAL_ENV, ~/.local, /usr/local and /usr.");
  command->callback([options, &run] { run = [options] { return RunDevices(*options); }; });
}

void AddDevicesProbe(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("devices-probe", "");
  command->group("");  // not in --help
  const auto path = std::make_shared<std::string>();
  command->add_option("path", *path)->required();
  command->callback([path, &run] {
    run = [path]() -> int {
      pjrt::SetPluginEnvironment();
      fmt::print("{}\n", Probe(*path).dump(-1, ' ', false, Json::error_handler_t::replace));
      std::fflush(stdout);
      // Some plugins take long or fail in their exit handlers; nothing of ours is left to do.
      std::_Exit(kExitOk);
    };
  });
}

}  // namespace ulmus::apps
