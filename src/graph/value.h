// The tensor program as data: a Graph owns Regions of Nodes; a Value is one result of a Node.
// Building a graph runs nothing and knows no device. Ops are in graph/ops.h, gradients in
// graph/autodiff.h, text in graph/print.h.
//
// Regions are closed functions: a node inside one refers only to values of the same region. When
// code inside a region (a scan body, say) uses a value from outside, the region captures it: the
// value becomes one more parameter of the region and one more operand of the node that owns it. So
// every rule sees all inputs of a region in one list.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"  // Loc
#include "tensor/host_tensor.h"
#include "tensor/mesh.h"
#include "tensor/program.h"
#include "tensor/shape.h"

namespace ulmus::graph {

class Graph;
struct Node;
struct OpDef;
struct Region;

// A handle to one result of a node: cheap to copy, valid as long as its Graph.
class Value {
 public:
  Value() = default;  // null: "no value", used for absent cotangents
  Value(Node* node, int64_t index) : node_(node), index_(index) {}

  explicit operator bool() const { return node_ != nullptr; }
  Node* node() const { return node_; }
  int64_t index() const { return index_; }
  const TensorType& type() const;
  const Shape& shape() const { return type().shape; }
  DType dtype() const { return type().dtype; }
  int64_t rank() const { return shape().rank(); }
  int64_t dim(int64_t axis) const { return shape().dim(axis); }  // negative axes count from the end
  // Declared sharding, for parameters and sharding constraints; other values leave it to
  // propagation.
  const std::optional<Sharding>& sharding() const;
  Graph& graph() const;

  friend bool operator==(const Value&, const Value&) = default;

 private:
  Node* node_ = nullptr;
  int64_t index_ = 0;
};

using Values = std::vector<Value>;

// Base of an op's own attribute struct (axes, permutation, ...). Immutable and shared by clones.
struct Attrs {
  virtual ~Attrs() = default;
};

struct Node {
  const OpDef* op = nullptr;
  Values operands;
  std::vector<TensorType> results;
  std::shared_ptr<const Attrs> attrs;
  std::vector<Region*> regions;
  std::optional<Sharding> sharding;    // of result 0
  Region* region = nullptr;            // where the node lives
  Loc loc;                             // the C++ line that made it
  const std::string* scope = nullptr;  // named scope ("layers/attention"), owned by the graph

  Value result(int64_t index = 0) { return Value(this, index); }
  Values AllResults();
  template <class T>
  const T& attrs_as() const {
    return static_cast<const T&>(*attrs);
  }
};

// A closed list of nodes. Parameters come first the explicit ones, then one per captured outer
// value.
struct Region {
  Graph* graph = nullptr;
  Region* parent = nullptr;  // the region that was being built when this one was opened
  std::vector<Node*> parameters;
  Values captured;           // outer values, in the order of the last captured.size() parameters
  std::vector<Node*> nodes;  // in order of creation, which is topological
  Values results;

  std::vector<std::string>
      manual_axes;  // of a manual region: the axes its code is written per device for

  // How a value of a foreign region becomes one of this region, asked before capturing; see
  // autodiff.cc.
  std::function<Value(Value)> importer;
  std::map<std::pair<Node*, int64_t>, Value> imported;

  int64_t num_explicit() const { return static_cast<int64_t>(parameters.size() - captured.size()); }
  Value parameter(int64_t index) const;
  // `value` as a value of this region: itself, or captured from an enclosing region.
  Value Import(Value value);
  Value AddParameter(TensorType type, const Loc& loc);
  // Turns `outer`, a value of `parent`, into a captured parameter.
  Value Capture(Value outer);
};

// Cotangents of a node's results on the way in, and what of them a gradient rule may use.
struct VjpContext {
  Node& node;
  Values cotangents;         // one per result; null where zero
  std::vector<bool> needed;  // one per operand: is its cotangent wanted?

  Value operand(int64_t index) const { return node.operands[static_cast<size_t>(index)]; }
  Value result(int64_t index = 0) const { return node.result(index); }
  // Cotangent of a result, zeros where absent.
  Value cotangent(int64_t index = 0) const;
};

class Printer;
class Interpreter;
struct RefTensor;

// One op: all that the rest of the module knows about it. The shape rule is in the function of
// graph/ops.h that makes the node.
struct OpDef {
  const char* name = "";
  // Cotangents of the operands from those of the results: one Value per operand, null for zero.
  // Absent: not differentiable.
  std::function<Values(const VjpContext&)> vjp = nullptr;
  // Writes the node as StableHLO and binds the names of its results.
  std::function<void(Printer&, const Node&)> print = nullptr;
  // Naive evaluation in double, the twin that tests compare compiled programs with. Per replica.
  std::function<std::vector<RefTensor>(const Node&, std::span<const RefTensor* const>)> evaluate =
      nullptr;
  // For ops that run regions or talk across devices: evaluates all replicas at once and binds
  // results itself.
  std::function<void(Interpreter&, const Node&)> evaluate_all = nullptr;
  // Cheaper to run again than to keep its result for a backward pass.
  bool cheap = false;
};

struct ProgramOptions {
  std::string platform = "cpu";  // chooses the lowering of kernel calls: "cpu", "tpu", "cuda"
  bool use_kernels = false;      // false: the portable lowering everywhere
  bool locations = true;         // the C++ line behind every op
};

class Graph {
 public:
  // `rules` map logical axis names to axes of `mesh` (see ShardAs in graph/ops.h).
  explicit Graph(std::string name, Mesh mesh = {}, AxisRules rules = {});
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const std::string& name() const { return name_; }
  const Mesh& mesh() const { return mesh_; }
  const AxisRules& rules() const { return rules_; }

  // An argument of the program, global shape. Arguments appear in the program in order of creation.
  Value Parameter(std::string name, TensorType type, std::optional<Sharding> sharding = {},
                  Loc loc = Loc::current());
  // A result of the program. `donates`: the parameter whose buffer it takes over; same type and
  // sharding (CHECK).
  void Result(std::string name, Value value, std::optional<Sharding> sharding = {},
              Value donates = {}, Loc loc = Loc::current());
  // Sharding of a tensor with these logical axes under this graph's rules. CHECKs that the names
  // are known.
  Sharding ShardingFor(std::span<const std::string> logical_axes, const Loc& loc) const;

  // StableHLO and the description of arguments and results. Same graph, same bytes.
  Program ToProgram(const ProgramOptions& options = {}) const;

  // --- for ops ---
  Region& root() { return *root_; }
  const Region& root() const { return *root_; }
  Region& current() { return *current_; }
  const Region& current() const { return *current_; }
  // Appends a node to the current region. Operands from enclosing regions are captured.
  Node& AddNode(const OpDef& op, Values operands, std::vector<TensorType> results,
                std::shared_ptr<const Attrs> attrs, const Loc& loc,
                std::vector<Region*> regions = {});
  Region& NewRegion();  // child of the current region; not entered
  // Runs `body` with `region` as the current one.
  void InRegion(Region& region, const std::function<void()>& body);
  // Deep copy of `node` into the current region with the given operands.
  Node& Clone(const Node& node, Values operands);
  // Deep copy of a closed region, as a child of the current one; not entered.
  Region& CloneRegion(const Region& region);
  // Copies the nodes of `region` into the current one, its parameters standing for `arguments`;
  // returns its results. `replace(node, operands)` may supply a value for a one-result node instead
  // of a copy.
  Values InlineCopy(const Region& region, const Values& arguments,
                    const std::function<Value(const Node&, const Values&)>& replace);
  // While set, new nodes carry this node's line and scope: a gradient belongs to the op it is the
  // gradient of.
  const Node* set_origin(const Node* origin) { return std::exchange(origin_, origin); }

  const std::vector<ProgramValue>& arguments() const { return arguments_; }
  const std::vector<ProgramValue>& results() const { return results_; }
  void PushScope(const std::string& name);
  void PopScope();

 private:
  friend struct Region;
  Node& NewNode(const OpDef& op, std::vector<TensorType> results, Region& region, const Loc& loc);
  std::string name_;
  Mesh mesh_;
  AxisRules rules_;
  std::deque<Node> nodes_;
  std::deque<Region> regions_;
  std::deque<std::string> scopes_;  // interned, so nodes can point at them
  std::vector<const std::string*> scope_stack_;
  const Node* origin_ = nullptr;
  Region* root_ = nullptr;
  Region* current_ = nullptr;
  std::vector<ProgramValue> arguments_, results_;
};

// Names everything built in its lifetime: { Scope s(graph, "attention"); ... } appears in locations
// and profiles.
class Scope {
 public:
  Scope(Graph& graph, const std::string& name) : graph_(graph) { graph_.PushScope(name); }
  ~Scope() { graph_.PopScope(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Graph& graph_;
};

// CHECK_SHAPE(scores, {B, N, T, T}): fails at graph-building time, costs nothing at run time.
#define CHECK_SHAPE(value, ...)                                                                   \
  CHECK((value).shape() == ::ulmus::Shape(__VA_ARGS__), "shape of " #value " is {}, expected {}", \
        (value).shape().ToString(), ::ulmus::Shape(__VA_ARGS__).ToString())

}  // namespace ulmus::graph
