// From nothing to an executable from the cache: load the plugin, make a client, hash-check, load. Each turn is a fresh
// process, so run it alone:
//   pjrt_bench --benchmark_filter=WarmStart
#include <benchmark/benchmark.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
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
    body += fmt::format("    %t{0} = stablehlo.tanh {1} : {2}\n    %y{0} = stablehlo.dot_general %t{0}, {1}, contracting_dims = [1] x [{3}] : ({2}, "
                        "{2}) -> {2}\n",
                        i, last, kType, i % 2);
    last = fmt::format("%y{}", i);
  }
  Program program;
  program.name = "chain";
  program.text = fmt::format("module @chain {{\n  func.func public @main(%x: {0}) -> {0} {{\n{1}    return {2} : {0}\n  }}\n}}", kType, body, last);
  program.arguments = {{"x", type, Sharding::Replicated(2), -1}};
  program.results = {{"y", type, Sharding::Replicated(2), -1}};
  return program;
}

// Seconds, and whether the executable came from the cache.
struct Turn {
  double seconds;
  bool from_cache;
};

Turn TakeTurn(const PluginCandidate& candidate, const std::string& directory) {
  const auto start = std::chrono::steady_clock::now();
  const auto plugin = Plugin::Load(candidate.path);
  CHECK(plugin.ok(), "{}", plugin.status().ToString());
  const auto client = Client::Create(*plugin);
  CHECK(client.ok(), "{}", client.status().ToString());
  CompilationCache cache({.directory = directory, .log = {}});
  const auto executable = (*client)->Compile(Chain(), {}, &cache);
  CHECK(executable.ok(), "{}", executable.status().ToString());
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), (*executable)->from_cache()};
}

Turn TakeTurnInChild(const PluginCandidate& candidate, const std::string& directory) {
  int fds[2];
  CHECK(pipe(fds) == 0, "no pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    const Turn turn = TakeTurn(candidate, directory);
    _exit(write(fds[1], &turn, sizeof turn) == sizeof turn ? 0 : 1);
  }
  close(fds[1]);
  Turn turn{};
  CHECK(read(fds[0], &turn, sizeof turn) == sizeof turn, "the child failed");
  close(fds[0]);
  waitpid(pid, nullptr, 0);
  return turn;
}

void WarmStart(benchmark::State& state, const PluginCandidate& candidate) {
  const std::string directory = std::filesystem::temp_directory_path() / fmt::format("ulmus_warm_start_{}", getpid());
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
