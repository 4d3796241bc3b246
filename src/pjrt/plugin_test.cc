#include "pjrt/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "pjrt/environment.h"
#include "pjrt/testing.h"
#include "pjrt/wheels.h"

namespace ulmus::pjrt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string Fixture(const std::string& name) {
  return std::string(ULMUS_FIXTURE_DIR) + "/" + name + ".so";
}

TEST(PluginLoad, EachFailureSaysWhatWhereAndWhatToDo) {
  const std::string text_file = testing::TempDir() + "not_a_library.so";
  std::ofstream(text_file) << "PK plain text";
  struct Case {
    std::string path;
    StatusCode code;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {"/nowhere/plugin.so",
       StatusCode::kNotFound,
       {"/nowhere/plugin.so", "no such file",
        "known wheels: fastatomstruct-xla-cpu, lammps-jax-pjrt-cpu, xla-cpu-pjrt", "make setup"}},
      {testing::TempDir(),
       StatusCode::kInvalidArgument,
       {"expected a shared library", "found a folder"}},
      {text_file,
       StatusCode::kInvalidArgument,
       {"expected a shared library (ELF)", "found another kind of file of 13 bytes"}},
      {Fixture("pjrt_no_symbol"),
       StatusCode::kInvalidArgument,
       {"no symbol GetPjrtApi", "not a PJRT plugin"}},
      {Fixture("pjrt_wrong_major"),
       StatusCode::kFailedPrecondition,
       {"found PJRT API version 99.7, expected 0.x"}},
      {Fixture("pjrt_too_old"),
       StatusCode::kFailedPrecondition,
       {"too old", "API 0.7", "table of 64 bytes", "Install a newer plugin"}},
  };
  for (const Case& c : cases) {
    const auto plugin = Plugin::Load(c.path);
    ASSERT_FALSE(plugin.ok()) << c.path;
    EXPECT_EQ(plugin.error().code(), c.code) << plugin.error().ToString();
    EXPECT_THAT(plugin.error().message(), HasSubstr(c.path));
    for (const std::string& part : c.parts) EXPECT_THAT(plugin.error().message(), HasSubstr(part));
  }
}

TEST(PluginLoad, ATruncatedLibraryIsAnError) {
  const std::string path = testing::TempDir() + "truncated.so";
  fs::copy_file(Fixture("pjrt_wrong_major"), path, fs::copy_options::overwrite_existing);
  fs::resize_file(path, 600);  // dlopen of this dies of SIGBUS
  const auto plugin = Plugin::Load(path);
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.error().code(), StatusCode::kDataLoss);
  EXPECT_THAT(plugin.error().message(), HasSubstr("cut short: found 600 bytes"));
}

// A folder of wheels with empty files: discovery does not open them.
class FakeWheels {
 public:
  explicit FakeWheels(const std::string& name) : root_(testing::TempDir() + name) {
    fs::remove_all(root_);
  }
  ~FakeWheels() {
    fs::remove_all(root_);
    for (const auto& [variable, value] : saved_)
      value.empty() ? unsetenv(variable.c_str()) : setenv(variable.c_str(), value.c_str(), 1);
  }
  void Add(const std::string& file) {
    fs::create_directories(fs::path(root_ + "/" + file).parent_path());
    std::ofstream(root_ + "/" + file) << "x";
  }
  void Set(const std::string& variable, const std::string& value) {
    const char* old = std::getenv(variable.c_str());
    saved_.emplace_back(variable, old == nullptr ? "" : old);
    setenv(variable.c_str(), value.c_str(), 1);
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
  std::vector<std::pair<std::string, std::string>> saved_;
};

std::vector<std::string> Names(const std::vector<PluginCandidate>& candidates) {
  std::vector<std::string> names;
  for (const auto& c : candidates) names.push_back(c.name);
  return names;
}

TEST(FindPlugins, ExplicitValuesComeFirstThenWheelsInPickOrder) {
  FakeWheels wheels("wheels_order");
  wheels.Add("wheels/xla-cpu-pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so");
  wheels.Add("wheels/lammps-jax-pjrt-cpu/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so");
  wheels.Add("wheels/fastatomstruct-xla-cpu/fastatomstruct_xla_cpu/libpjrt_cpu.so");
  wheels.Set("ULMUS_DEPS_DIR", wheels.root());
  wheels.Set("ULMUS_PJRT_PLUGIN", "xla-cpu-pjrt");
  const auto found = FindPlugins({.flag = "/some/other.so", .recipe = "lammps-jax-pjrt-cpu"});
  ASSERT_GE(found.size(), 3u);
  EXPECT_EQ(found[0].path, "/some/other.so");
  EXPECT_EQ(found[0].origin, "flag");
  EXPECT_EQ(found[0].kind, "unknown");
  EXPECT_EQ(found[1].path,
            wheels.root() + "/wheels/xla-cpu-pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so");
  EXPECT_EQ(found[1].origin, "ULMUS_PJRT_PLUGIN");
  EXPECT_EQ(found[1].kind, "cpu");
  EXPECT_EQ(found[2].name, "lammps-jax-pjrt-cpu");
  EXPECT_EQ(found[2].origin, "recipe");
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(found[i].IsExplicit());

  unsetenv("ULMUS_PJRT_PLUGIN");
  const auto names = Names(FindPlugins());
  const auto at = [&](const char* name) { return std::ranges::find(names, name) - names.begin(); };
  EXPECT_LT(at("fastatomstruct-xla-cpu"), at("lammps-jax-pjrt-cpu"));
  EXPECT_LT(at("lammps-jax-pjrt-cpu"), at("xla-cpu-pjrt"));
  EXPECT_LT(at("xla-cpu-pjrt"), static_cast<int64_t>(names.size()));
}

TEST(PluginCandidate, PrintsItsNameAndMakesATestName) {
  const PluginCandidate candidate{
      .name = "xla-cpu-pjrt", .path = "/x.so", .origin = "flag", .kind = "cpu"};
  EXPECT_EQ(testing::PrintToString(candidate), "xla-cpu-pjrt");
  EXPECT_EQ(TestName(candidate), "xla_cpu_pjrt");
}

TEST(FindPlugins, SitePackagesOfAPythonInstallAreSearched) {
  FakeWheels venv("venv");
  venv.Add("lib/python3.11/site-packages/libtpu/libtpu.so");
  venv.Set("VIRTUAL_ENV", venv.root());
  const auto found = FindPlugins();
  const auto it =
      std::ranges::find(found, venv.root() + "/lib/python3.11/site-packages/libtpu/libtpu.so",
                        &PluginCandidate::path);
  ASSERT_NE(it, found.end());
  EXPECT_EQ(it->kind, "tpu");
  EXPECT_FALSE(it->IsExplicit());
}

TEST(LoadDefaultCpuPlugin, AnExplicitPluginThatFailsIsAnErrorNotAReasonToTakeAnother) {
  const auto plugin = LoadDefaultCpuPlugin({.flag = "/nowhere/plugin.so", .recipe = ""});
  ASSERT_FALSE(plugin.ok());
  EXPECT_EQ(plugin.error().code(), StatusCode::kNotFound);
  EXPECT_THAT(plugin.error().message(), HasSubstr("named by flag"));
}

TEST(LoadPluginOfKind, APluginNamedForAnotherKindIsPassedOver) {
  FakeWheels wheels("wheels_kind");
  wheels.Add("wheels/lammps-jax-pjrt-cpu/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so");
  const std::string cpu =
      wheels.root() + "/wheels/lammps-jax-pjrt-cpu/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so";
  // The file is no library: whoever tries to load it says so.
  EXPECT_THAT(LoadPluginOfKind("cpu", {.flag = cpu, .recipe = ""}).status().message(),
              HasSubstr("named by flag"));
  // Of a kind that no wheel has: nothing foreign is loaded here.
  EXPECT_THAT(LoadPluginOfKind("neuron", {.flag = cpu, .recipe = ""}).status().message(),
              testing::Not(HasSubstr("named by flag")));
}

TEST(SetPluginEnvironment, KeepsWhatTheUserHasSet) {
  setenv("TF_CPP_MIN_LOG_LEVEL", "0", 1);
  unsetenv("PJRT_NPROC");
  SetPluginEnvironment({.num_threads = 3});
  EXPECT_STREQ(std::getenv("TF_CPP_MIN_LOG_LEVEL"), "0");
  EXPECT_STREQ(std::getenv("PJRT_NPROC"), "3");
  SetPluginEnvironment({.num_threads = 5});
  EXPECT_STREQ(std::getenv("PJRT_NPROC"), "3");
  if (!HasTpuDevices()) {
    EXPECT_STREQ(std::getenv("TPU_SKIP_MDS_QUERY"), "1");
  }
  unsetenv("TF_CPP_MIN_LOG_LEVEL");
  unsetenv("PJRT_NPROC");
}

TEST(KnownWheels, TheirFilesTellTheirKind) {
  for (const KnownWheel& wheel : KnownWheels())
    EXPECT_EQ(KindOfPluginFile(wheel.file), wheel.kind) << wheel.name;
  EXPECT_EQ(KindOfPluginFile("/x/other.so"), "unknown");
}

TEST(KnownWheels, OnlyAPluginWeMeasuredLoadsCollectivesInOrder) {
  EXPECT_TRUE(LoadsCollectivesInOrder("/x/site-packages/fastatomstruct_xla_cpu/libpjrt_cpu.so"));
  for (const char* path :
       {"/x/libpjrt_cpu.so", "/x/other.so", "/x/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
        "/x/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"}) {
    EXPECT_FALSE(LoadsCollectivesInOrder(path)) << path;
  }
}

}  // namespace
}  // namespace ulmus::pjrt
