#include "graph/interpret.h"

#include <utility>

namespace ulmus::graph {

RefTensor RefTensor::FromHost(const HostTensor& tensor) {
  RefTensor ref = Zeros(tensor.type());
  for (size_t i = 0; i < ref.data.size(); ++i) ref.data[i] = tensor.Get(static_cast<int64_t>(i));
  return ref;
}

HostTensor RefTensor::ToHost() const {
  HostTensor host(type);
  for (size_t i = 0; i < data.size(); ++i) host.Set(static_cast<int64_t>(i), data[i]);
  return host;
}

const Interpreter::Replicas& Interpreter::Get(Value value) const {
  const auto it = env_.find({value.node(), value.index()});
  CHECK_AT(value.node()->loc, it != env_.end(), "{} was not evaluated", value.node()->op->name);
  return it->second;
}

void Interpreter::Set(Value value, Replicas replicas) {
  for (RefTensor& t : replicas) {
    CHECK_AT(value.node()->loc,
             t.type == value.type() &&
                 static_cast<int64_t>(t.data.size()) == t.type.shape.num_elements(),
             "{}: evaluated to {} with {} elements, expected {}", value.node()->op->name,
             t.type.ToString(), t.data.size(), value.type().ToString());
    const bool round = options_.round || !IsFloat(t.type.dtype);
    if (!round) continue;
    for (double& x : t.data) x = RoundTo(t.type.dtype, x);
  }
  env_[{value.node(), value.index()}] = std::move(replicas);
}

std::vector<Interpreter::Replicas> Interpreter::Run(const Region& region,
                                                    const std::vector<Replicas>& arguments) {
  CHECK(arguments.size() == region.parameters.size(), "{} arguments for {} parameters",
        arguments.size(), region.parameters.size());
  for (size_t i = 0; i < arguments.size(); ++i) Set(region.parameters[i]->result(), arguments[i]);
  for (const Node* node : region.nodes) {
    if (node->op->evaluate_all) {
      node->op->evaluate_all(*this, *node);
      continue;
    }
    CHECK_AT(node->loc, node->op->evaluate != nullptr, "{} has no naive evaluation",
             node->op->name);
    std::vector<Replicas> results(node->results.size());
    for (int64_t r = 0; r < num_replicas_; ++r) {
      std::vector<const RefTensor*> operands;
      for (Value v : node->operands) operands.push_back(&Get(v)[static_cast<size_t>(r)]);
      std::vector<RefTensor> values = node->op->evaluate(*node, operands);
      for (size_t i = 0; i < results.size(); ++i) results[i].push_back(std::move(values[i]));
    }
    for (size_t i = 0; i < results.size(); ++i)
      Set(Value(const_cast<Node*>(node), static_cast<int64_t>(i)), std::move(results[i]));
  }
  std::vector<Replicas> results;
  for (Value v : region.results) results.push_back(Get(v));
  return results;
}

std::vector<Interpreter::Replicas> Interpreter::RunReplicated(
    const Region& region, const std::vector<Replicas>& arguments, int64_t num_replicas) {
  const int64_t saved = std::exchange(num_replicas_, num_replicas);
  std::vector<Replicas> results = Run(region, arguments);
  num_replicas_ = saved;
  return results;
}

std::vector<RefTensor> Interpret(const Graph& graph, std::span<const RefTensor> arguments,
                                 const InterpretOptions& options) {
  Interpreter interpreter(options);
  std::vector<Interpreter::Replicas> inputs;
  for (const RefTensor& argument : arguments) inputs.push_back({argument});
  std::vector<RefTensor> outputs;
  for (Interpreter::Replicas& replicas : interpreter.Run(graph.root(), inputs))
    outputs.push_back(std::move(replicas[0]));
  return outputs;
}

}  // namespace ulmus::graph
