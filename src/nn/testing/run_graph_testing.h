// A graph compiled and run on a client, for tests of numbers. No test framework in here.
#pragma once

#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/interpret.h"
#include "pjrt/run.h"
#include "pjrt/testing.h"

namespace ulmus::nn {

// Results of `program` for inputs with global shapes. CHECKs that it compiles and runs.
inline std::vector<HostTensor> RunProgram(pjrt::Client& client, const Program& program,
                                          const std::vector<graph::RefTensor>& inputs) {
  std::vector<HostTensor> arguments;
  for (const graph::RefTensor& input : inputs) arguments.push_back(input.ToHost());
  Result<std::vector<HostTensor>> results = pjrt::RunOnce(client, program, arguments);
  CHECK(results.ok(), "{}", results.status().ToString());
  return std::move(*results);
}

// The client shared by tests, as large as the graph's mesh. CHECKs that there is one.
inline pjrt::Client& ClientFor(const pjrt::PluginCandidate& plugin, const graph::Graph& graph) {
  const Result<pjrt::Client*> client = pjrt::SharedClient(plugin, graph.mesh().num_devices());
  CHECK(client.ok(), "{}", client.status().ToString());
  return **client;
}

}  // namespace ulmus::nn
