// `ulmus devices` from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/testing/run_program.h"
#include "pjrt/testing.h"

namespace ulmus::apps {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

json PluginNamed(const json& report, const std::string& path) {
  for (const json& plugin : report["plugins"]) {
    if (plugin["path"] == path) return plugin;
  }
  return {};
}

TEST(Devices, ListsEveryInstalledCpuPluginWithItsDevices) {
  const Output output = RunUlmus("devices --json");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const json report = json::parse(output.text, nullptr, false);
  ASSERT_TRUE(report.is_object()) << output.text;
  const auto installed = pjrt::InstalledCpuPlugins();
  if (installed.empty()) GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
  for (const pjrt::PluginCandidate& candidate : installed) {
    const json plugin = PluginNamed(report, candidate.path);
    ASSERT_TRUE(plugin.is_object()) << candidate.path;
    EXPECT_EQ(plugin["name"], candidate.name);
    EXPECT_EQ(plugin["platform"], "cpu");
    EXPECT_EQ(plugin["devices"].size(), 1u);
    EXPECT_THAT(plugin["api_version"].get<std::string>(), testing::StartsWith("0."));
    EXPECT_FALSE(plugin.contains("error"));
  }
}

TEST(Devices, TheFirstLineNamesTheDefaultPlugin) {
  const auto installed = pjrt::InstalledCpuPlugins();
  if (installed.empty()) GTEST_SKIP() << "no CPU plugin is installed; run `make setup`";
  const std::string first_line =
      "Runs use " + installed.front().name + " (" + installed.front().path + ");";
  EXPECT_THAT(RunUlmus("devices").text, testing::StartsWith(first_line));
  EXPECT_EQ(json::parse(RunUlmus("devices --json").text, nullptr, false)["default"],
            installed.front().path);
  const std::string last = installed.back().name;
  EXPECT_THAT(RunUlmus("devices --plugin " + last).text,
              testing::StartsWith("Runs use " + last + " ("));
}

TEST(Devices, APluginWithoutHardwareCompilesAheadOfTime) {
  const json report = json::parse(RunUlmus("devices --json").text, nullptr, false);
  int found = 0;
  for (const json& plugin : report["plugins"]) {
    const std::string kind = plugin.value("kind", "");
    if ((kind != "tpu" && kind != "cuda") || plugin.contains("devices")) continue;
    ++found;
    EXPECT_EQ(plugin.value("note", ""), "no device here, but usable to compile ahead of time");
  }
  if (found == 0) GTEST_SKIP() << "no plugin of a TPU or GPU is installed, or the hardware is here";
}

TEST(Devices, AnExplicitPluginThatFailsIsAFailure) {
  const std::string fixture = ULMUS_NO_SYMBOL_FIXTURE;
  const Output flag = RunUlmus("devices --json --plugin " + fixture);
  EXPECT_EQ(flag.exit_code, 1);
  const json plugin = json::parse(flag.text, nullptr, false)["plugins"][0];
  EXPECT_EQ(plugin["path"], fixture);
  EXPECT_EQ(plugin["origin"], "flag");
  EXPECT_THAT(plugin["error"].get<std::string>(), HasSubstr("GetPjrtApi"));

  setenv("ULMUS_PJRT_PLUGIN", "/nowhere/plugin.so", 1);
  const Output environment = RunUlmus("devices");
  unsetenv("ULMUS_PJRT_PLUGIN");
  EXPECT_EQ(environment.exit_code, 1);
  EXPECT_THAT(environment.text, AllOf(HasSubstr("/nowhere/plugin.so"), HasSubstr("no such file")));
}

TEST(Devices, APluginThatCrashesIsALineInTheReport) {
  const Output output = RunUlmus(std::string("devices --json --plugin ") + ULMUS_CRASH_FIXTURE);
  EXPECT_EQ(output.exit_code, 1);
  const json report = json::parse(output.text, nullptr, false);
  ASSERT_TRUE(report.is_object()) << output.text;
  EXPECT_THAT(report["plugins"][0]["error"].get<std::string>(),
              HasSubstr("crashed its process with signal 6"));
  EXPECT_EQ(report["plugins"].size(),
            pjrt::FindPlugins().size() + 1);  // the others are still probed
}

TEST(Devices, APluginThatHangsIsStopped) {
  const auto start = std::chrono::steady_clock::now();
  // The short limit may stop real plugins too; this test is about the one that never answers.
  const Output output =
      RunUlmus(std::string("devices --json --timeout-s 0.3 --plugin ") + ULMUS_HANG_FIXTURE);
  EXPECT_EQ(output.exit_code, 1);
  const json report = json::parse(output.text, nullptr, false);
  ASSERT_TRUE(report.is_object()) << output.text;
  EXPECT_THAT(report["plugins"][0]["error"].get<std::string>(),
              HasSubstr("no answer within 0.3 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(CommandLine, MistakesExitWith2AndHelpWith0) {
  EXPECT_EQ(RunUlmus("").exit_code, 2);
  const Output typo = RunUlmus("devcies --json");
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.text, AllOf(HasSubstr("no subcommand 'devcies'"), HasSubstr("'devices'")));
  EXPECT_EQ(RunUlmus("devices-prob").text.find("devices-probe"), std::string::npos);
  EXPECT_EQ(RunUlmus("devices --no-such-flag").exit_code, 2);
  EXPECT_EQ(RunUlmus("devices --timeout-s=-1").exit_code, 2);
  const Output help = RunUlmus("devices --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.text, HasSubstr("Example: ulmus devices"));
  const Output version = RunUlmus("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.text, HasSubstr("ulmus 0."));
  EXPECT_EQ(RunUlmus("--help").text.find("devices-probe"), std::string::npos);
}

}  // namespace
}  // namespace ulmus::apps
