// From the start of the process to the end of its first training step, with the step program in the
// cache. Runs the example as a user would, once cold and five times warm, and prints the medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"

namespace {

struct Run {
  double wall_s = 0;        // of the whole process, start to exit
  double first_step_s = 0;  // as the program itself reports it, from entering main
  bool from_cache = false;
};

Run RunExample(const std::string& program, const std::string& cache) {
  const std::string command = "XDG_CACHE_HOME='" + cache + "' ULMUS_LOG=error '" + program +
                              "' --json --set train.steps=1 2>&1";
  const auto start = std::chrono::steady_clock::now();
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string output;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  if (pclose(pipe) != 0) {
    std::fprintf(stderr, "%s failed:\n%s\n", command.c_str(), output.c_str());
    std::exit(1);
  }
  const auto json = nlohmann::json::parse(output);
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          json.at("first_step_s"), json.at("from_cache")};
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string program = argc > 1 ? argv[1] : RESIDUAL_MLP_PROGRAM;
  const ulmus::TempDir cache;
  const Run cold = RunExample(program, cache.path().string());
  std::vector<double> wall, first_step;
  for (int i = 0; i < 5; ++i) {
    const Run warm = RunExample(program, cache.path().string());
    if (!warm.from_cache) {
      std::fprintf(stderr, "run %d did not take its program from the cache\n", i);
      return 1;
    }
    wall.push_back(warm.wall_s);
    first_step.push_back(warm.first_step_s);
  }
  std::printf("cold: first step %.2f s, process %.2f s\n", cold.first_step_s, cold.wall_s);
  std::printf("warm, median of 5: first step %.3f s, process %.3f s\n", Median(first_step),
              Median(wall));
}
