// StableHLO text from a graph. Deterministic: the same graph gives the same bytes, names are
// numbered in order of printing, nodes that no result needs are left out.
#pragma once

#include <fmt/format.h>

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "graph/value.h"

namespace ulmus::graph {

// "tensor<2x3xf32>"
std::string MlirType(const TensorType& type);
// "tensor<f32>, tensor<4xi32>"
std::string MlirTypes(std::span<const TensorType> types);
// "{\"data\", \"fsdp\"}" per dimension, as Shardy writes a sharding of @mesh: <@mesh, [{"fsdp"},
// {}]>
std::string ShardyText(const Sharding& sharding);

// "text" as an MLIR string literal, quotes included.
std::string Quoted(std::string_view text);

class Printer {
 public:
  explicit Printer(const Graph& graph, const ProgramOptions& options)
      : graph_(graph), options_(options) {}

  // The whole module.
  std::string Module();
  const std::set<std::string>& custom_calls() const { return custom_calls_; }

  // --- for the print rules of ops ---
  const Graph& graph() const { return graph_; }
  const ProgramOptions& options() const { return options_; }
  std::string_view Name(Value value) const;                // "%7"
  std::string Names(std::span<const Value> values) const;  // "%7, %9"
  std::string Type(Value value) const { return MlirType(value.type()); }
  std::string Types(std::span<const Value> values) const;
  // "%8 = text loc(...)", binding the node's results.
  template <class... Args>
  void Emit(const Node& node, fmt::format_string<Args...> format, Args&&... args) {
    EmitText(node, fmt::format(format, std::forward<Args>(args)...));
  }
  // A line that binds no value of the graph: "%9 = text"; returns "%9".
  std::string EmitTemp(const std::string& text);
  // A line as it stands.
  void EmitLine(const std::string& text);
  std::string FreshName();
  void Bind(Value value, std::string name) {
    names_[{value.node(), value.index()}] = std::move(name);
  }
  // Prints the live nodes of `region` here, its parameters standing for `arguments`; returns the
  // names of its results.
  std::vector<std::string> Inline(const Region& region, const std::vector<std::string>& arguments);
  // Binds the results of `node` to names that exist already.
  void BindResults(const Node& node, const std::vector<std::string>& names);
  // An i32 scalar constant's name.
  std::string IntConstant(int64_t value);
  void Indent() { indent_ += 2; }
  void Dedent() { indent_ -= 2; }
  std::string LocText(const Node& node) const;
  std::string FunctionName(const Region& callee);  // and prints it after main
  void NeedCustomCall(const std::string& target) { custom_calls_.insert(target); }
  int64_t NextChannel() { return ++channels_; }

 private:
  void EmitText(const Node& node, const std::string& text);
  void MarkLive(const Region& region);
  std::string Function(const Region& region, const std::string& name, bool is_public);

  const Graph& graph_;
  ProgramOptions options_;
  std::string out_;
  int indent_ = 4;
  int64_t next_name_ = 0;
  int64_t channels_ = 0;
  std::map<std::pair<const Node*, int64_t>, std::string> names_;
  std::unordered_set<const Node*> live_;
  std::unordered_set<const Region*> marked_;
  std::vector<const Region*> functions_;
  std::map<const Region*, std::string> function_names_;
  std::set<std::string> custom_calls_;
};

}  // namespace ulmus::graph
