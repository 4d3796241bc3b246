// From the start of a process to an executable from the cache: load the plugin, make a client, look
// up, load. Each turn is this program started anew; a forked child would inherit a plugin without
// its threads, and hang.
//   pjrt_bench --benchmark_filter=WarmStart
#include <benchmark/benchmark.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "pjrt/client.h"
#include "pjrt/testing.h"

namespace ulmus::pjrt {
namespace {

// A chain of 40 products: compiles for long enough to tell loading from compiling.
Program Chain() {
  constexpr const char* kType = "tensor<64x64xf32>";
  const TensorType type{DType::kF32, {64, 64}};
  std::string body, last = "%x";
  for (int i = 0; i < 40; ++i) {
    body += fmt::format(
        "    %t{0} = stablehlo.tanh {1} : {2}\n    %y{0} = stablehlo.dot_general %t{0}, {1}, "
        "contracting_dims = [1] x [{3}] : ({2}, "
        "{2}) -> {2}\n",
        i, last, kType, i % 2);
    last = fmt::format("%y{}", i);
  }
  Program program;
  program.name = "chain";
  program.text = fmt::format(
      "module @chain {{\n  func.func public @main(%x: {0}) -> {0} {{\n{1}    return {2} : {0}\n  "
      "}}\n}}",
      kType, body, last);
  program.arguments = {{"x", type, Sharding::Replicated(2), -1}};
  program.results = {{"y", type, Sharding::Replicated(2), -1}};
  return program;
}

// Seconds, and whether the executable came from the cache.
struct Turn {
  double seconds;
  bool from_cache;
};

constexpr const char* kPluginVariable = "ULMUS_WARM_START_PLUGIN";
constexpr const char* kCacheVariable = "ULMUS_WARM_START_CACHE";

// In the child. True if the executable came from the cache.
bool TakeTurn(const std::string& path, const std::string& directory) {
  const auto plugin = Plugin::Load(path);
  CHECK(plugin.ok(), "{}", plugin.status().ToString());
  const auto client = Client::Create(*plugin);
  CHECK(client.ok(), "{}", client.status().ToString());
  CompilationCache cache({.directory = directory, .log = {}});
  const auto executable = (*client)->Compile(Chain(), {}, &cache);
  CHECK(executable.ok(), "{}", executable.status().ToString());
  return (*executable)->from_cache();
}

constexpr int kFromCache = 10, kCompiled = 11;  // exit codes of a turn

Turn TakeTurnInChild(const PluginCandidate& candidate, const std::string& directory) {
  setenv(kPluginVariable, candidate.path.c_str(), 1);
  setenv(kCacheVariable, directory.c_str(), 1);
  const auto start = std::chrono::steady_clock::now();
  char name[] = "pjrt_bench";
  char* const argv[] = {name, nullptr};
  pid_t pid = 0;
  CHECK(posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv, environ) == 0,
        "the benchmark cannot start itself");
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status), "the child ended with status {}",
        status);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  unsetenv(kPluginVariable);
  CHECK(WEXITSTATUS(status) == kFromCache || WEXITSTATUS(status) == kCompiled, "the child failed");
  return {seconds, WEXITSTATUS(status) == kFromCache};
}

void WarmStart(benchmark::State& state, const PluginCandidate& candidate) {
  const std::string directory =
      std::filesystem::temp_directory_path() / fmt::format("ulmus_warm_start_{}", getpid());
  const Turn cold = TakeTurnInChild(candidate, directory);
  CHECK(!cold.from_cache, "the first turn found an entry");
  for (auto _ : state) {
    const Turn warm = TakeTurnInChild(candidate, directory);
    CHECK(warm.from_cache, "a later turn compiled");
    state.SetIterationTime(warm.seconds);
  }
  state.counters["cold_s"] = cold.seconds;
  std::filesystem::remove_all(directory);
}

[[maybe_unused]] const bool kRegistered = [] {
  if (const char* plugin = std::getenv(kPluginVariable)) {
    _exit(TakeTurn(plugin, std::getenv(kCacheVariable)) ? kFromCache : kCompiled);
  }
  for (const PluginCandidate& plugin : InstalledCpuPlugins()) {
    benchmark::RegisterBenchmark(("WarmStart/" + plugin.name).c_str(), WarmStart, plugin)
        ->UseManualTime()
        ->Iterations(10)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace ulmus::pjrt
