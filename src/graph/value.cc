#include "graph/value.h"

#include <algorithm>
#include <utility>

#include "graph/ops.h"        // ZerosLike
#include "graph/ops/table.h"  // kParameter

namespace ulmus::graph {

const TensorType& Value::type() const {
  CHECK(node_ != nullptr, "null value");
  return node_->results[static_cast<size_t>(index_)];
}

const std::optional<Sharding>& Value::sharding() const {
  static const std::optional<Sharding> kNone;
  return index_ == 0 ? node_->sharding : kNone;
}

Graph& Value::graph() const {
  CHECK(node_ != nullptr, "null value");
  return *node_->region->graph;
}

Values Node::AllResults() {
  Values all;
  for (size_t i = 0; i < results.size(); ++i) all.emplace_back(this, static_cast<int64_t>(i));
  return all;
}

Value VjpContext::cotangent(int64_t index) const {
  const Value ct = cotangents[static_cast<size_t>(index)];
  return ct ? ct : ZerosLike(result(index), node.loc);
}

Value Region::parameter(int64_t index) const {
  return parameters[static_cast<size_t>(index)]->result();
}

Value Region::AddParameter(TensorType type, const Loc& loc) {
  Node& node = graph->NewNode(kParameter, {std::move(type)}, *this, loc);
  parameters.insert(parameters.begin() + num_explicit(), &node);  // captured ones stay last
  return node.result();
}

Value Region::Capture(Value outer) {
  Node& node = graph->NewNode(kParameter, {outer.type()}, *this, outer.node()->loc);
  parameters.push_back(&node);
  captured.push_back(outer);
  return node.result();
}

Value Region::Import(Value value) {
  CHECK(value, "null value used as an operand");
  if (value.node()->region == this) return value;
  const std::pair key(value.node(), value.index());
  if (const auto it = imported.find(key); it != imported.end()) return it->second;
  Value own = importer ? importer(value) : Value();
  if (!own && value.node()->op == &kConstant) {
    // Constants are repeated instead of captured: they stay visible to simplification.
    graph->InRegion(*this, [&] { own = graph->Clone(*value.node(), {}).result(); });
  }
  if (!own) {
    CHECK_AT(value.node()->loc, parent != nullptr,
             "a value made here ({} {}) is used outside the region that made it; return it from "
             "the region instead",
             value.node()->op->name, value.type().ToString());
    own = Capture(parent->Import(value));
  }
  imported[key] = own;
  return own;
}

Graph::Graph(std::string name, Mesh mesh, AxisRules rules)
    : name_(std::move(name)), mesh_(std::move(mesh)), rules_(std::move(rules)) {
  root_ = &regions_.emplace_back();
  root_->graph = this;
  current_ = root_;
}

Value Graph::Parameter(std::string name, TensorType type, std::optional<Sharding> sharding,
                       Loc loc) {
  const Sharding placed = sharding.value_or(Sharding::Replicated(type.shape.rank()));
  const Status valid = ValidateSharding(mesh_, type.shape, placed);
  CHECK_AT(loc, valid.ok(), "parameter '{}': {}", name, valid.message());
  arguments_.push_back({std::move(name), type, placed});
  const Value value = root_->AddParameter(std::move(type), loc);
  value.node()->sharding = placed;
  return value;
}

void Graph::Result(std::string name, Value value, std::optional<Sharding> sharding, Value donates,
                   Loc loc) {
  CHECK_AT(loc, current_ == root_ && value.node()->region == root_,
           "result '{}' must be a value of the outermost region", name);
  const Sharding placed = sharding.value_or(Sharding::Replicated(value.rank()));
  const Status valid = ValidateSharding(mesh_, value.shape(), placed);
  CHECK_AT(loc, valid.ok(), "result '{}': {}", name, valid.message());
  if (donates) {
    const auto parameter = std::ranges::find(root_->parameters, donates.node());
    CHECK_AT(loc, parameter != root_->parameters.end(),
             "result '{}' takes the buffer of {} {}, which is not a parameter of the program", name,
             donates.node()->op->name, donates.type().ToString());
    ProgramValue& argument = arguments_[static_cast<size_t>(parameter - root_->parameters.begin())];
    CHECK_AT(loc, argument.donated_to < 0, "parameter '{}' is donated twice", argument.name);
    CHECK_AT(loc, argument.type == value.type() && argument.sharding == placed,
             "result '{}' {} {} cannot take the buffer of parameter '{}' {} {}", name,
             value.type().ToString(), placed.ToString(), argument.name, argument.type.ToString(),
             argument.sharding.ToString());
    argument.donated_to = static_cast<int64_t>(results_.size());
  }
  results_.push_back({std::move(name), value.type(), placed});
  root_->results.push_back(value);
}

Sharding Graph::ShardingFor(std::span<const std::string> logical_axes, const Loc& loc) const {
  ulmus::Result<Sharding> sharding = ApplyRules(rules_, mesh_, logical_axes);
  CHECK_AT(loc, sharding.ok(), "{}", sharding.error().message());
  return *std::move(sharding);
}

Node& Graph::AddNode(const OpDef& op, Values operands, std::vector<TensorType> results,
                     std::shared_ptr<const Attrs> attrs, const Loc& loc,
                     std::vector<Region*> regions) {
  for (Value& operand : operands) {
    CHECK_AT(loc, operand, "{}: null operand", op.name);
    CHECK_AT(loc, operand.node()->region->graph == this, "{}: operand of another graph", op.name);
    operand = current_->Import(operand);
  }
  Node& node = NewNode(op, std::move(results), *current_, loc);
  node.operands = std::move(operands);
  node.attrs = std::move(attrs);
  node.regions = std::move(regions);
  current_->nodes.push_back(&node);
  return node;
}

Node& Graph::NewNode(const OpDef& op, std::vector<TensorType> results, Region& region,
                     const Loc& loc) {
  Node& node = nodes_.emplace_back();
  node.op = &op;
  node.results = std::move(results);
  node.region = &region;
  node.loc = origin_ ? origin_->loc : loc;
  node.scope = origin_ ? origin_->scope : scope_stack_.empty() ? nullptr : scope_stack_.back();
  return node;
}

Region& Graph::NewRegion() {
  Region& region = regions_.emplace_back();
  region.graph = this;
  region.parent = current_;
  return region;
}

void Graph::InRegion(Region& region, const std::function<void()>& body) {
  Region* saved = std::exchange(current_, &region);
  body();
  current_ = saved;
}

Region& Graph::CloneRegion(const Region& region) {
  Region& copy = NewRegion();
  copy.manual_axes = region.manual_axes;
  Values parameters;
  for (const Node* parameter : region.parameters)
    parameters.push_back(copy.AddParameter(parameter->results[0], parameter->loc));
  InRegion(copy, [&] {
    copy.results =
        InlineCopy(region, parameters, [](const Node&, const Values&) { return Value(); });
  });
  return copy;
}

Values Graph::InlineCopy(const Region& region, const Values& arguments,
                         const std::function<Value(const Node&, const Values&)>& replace) {
  std::map<std::pair<const Node*, int64_t>, Value> twins;
  for (size_t i = 0; i < arguments.size(); ++i) twins[{region.parameters[i], 0}] = arguments[i];
  const auto twin = [&](Value v) { return twins.at({v.node(), v.index()}); };
  for (const Node* original : region.nodes) {
    const Node& node = *original;
    Values operands;
    for (Value v : node.operands) operands.push_back(twin(v));
    if (const Value given = replace(node, operands)) {
      twins[{&node, 0}] = given;
      continue;
    }
    Node& copy = Clone(node, std::move(operands));
    for (size_t r = 0; r < copy.results.size(); ++r)
      twins[{&node, static_cast<int64_t>(r)}] = copy.result(static_cast<int64_t>(r));
  }
  Values results;
  for (Value v : region.results) results.push_back(twin(v));
  return results;
}

Node& Graph::Clone(const Node& node, Values operands) {
  // Functions (regions of calls) are shared by all their callers; other regions belong to one node.
  std::vector<Region*> regions;
  for (Region* region : node.regions)
    regions.push_back(node.op == &kCall ? region : &CloneRegion(*region));
  Node& copy = AddNode(*node.op, std::move(operands), node.results, node.attrs, node.loc,
                       std::move(regions));
  copy.sharding = node.sharding;
  copy.scope = node.scope;
  copy.loc = node.loc;
  return copy;
}

void Graph::PushScope(const std::string& name) {
  scopes_.push_back(scope_stack_.empty() ? name : *scope_stack_.back() + "/" + name);
  scope_stack_.push_back(&scopes_.back());
}

void Graph::PopScope() { scope_stack_.pop_back(); }

}  // namespace ulmus::graph
