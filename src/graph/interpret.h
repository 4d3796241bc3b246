// Naive evaluation of a graph in double: the twin that compiled programs and gradients are compared
// with. Slow, simple, and independent of any plugin.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/value.h"
#include "tensor/host_tensor.h"

namespace ulmus::graph {

// A tensor of doubles that stand for `type`'s elements. u64 values above 2^53 do not fit and are
// not supported.
struct RefTensor {
  TensorType type;
  std::vector<double> data;

  static RefTensor Zeros(TensorType type) {
    return {type, std::vector<double>(static_cast<size_t>(type.shape.num_elements()))};
  }
  static RefTensor FromHost(const HostTensor& tensor);
  HostTensor ToHost() const;
};

struct InterpretOptions {
  // Round every result to its dtype, as a device would. false: floats keep double precision (finite
  // differences).
  bool round = true;
};

// Results of the graph's program for these arguments, all with global shapes.
std::vector<RefTensor> Interpret(const Graph& graph, std::span<const RefTensor> arguments,
                                 const InterpretOptions& options = {});

// What evaluation rules of ops with regions or collectives see. Inside a manual region every value
// has one copy per device (a replica); outside there is one.
class Interpreter {
 public:
  using Replicas = std::vector<RefTensor>;

  explicit Interpreter(const InterpretOptions& options) : options_(options) {}
  const Replicas& Get(Value value) const;
  void Set(Value value, Replicas replicas);  // rounds, if asked for
  int64_t num_replicas() const { return num_replicas_; }
  // Results of `region` for `arguments` (one entry per parameter).
  std::vector<Replicas> Run(const Region& region, const std::vector<Replicas>& arguments);
  // The same with another number of replicas: entering and leaving a manual region.
  std::vector<Replicas> RunReplicated(const Region& region, const std::vector<Replicas>& arguments,
                                      int64_t num_replicas);

 private:
  InterpretOptions options_;
  int64_t num_replicas_ = 1;
  std::map<std::pair<const Node*, int64_t>, Replicas> env_;
};

}  // namespace ulmus::graph
