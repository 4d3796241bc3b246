#include "graph/ops/op.h"

#include <fmt/ranges.h>

namespace ulmus::graph {

namespace {

// operands: carry, captured by the condition, captured by the body. regions: condition, body.
struct WhileAttrs : Attrs {
  size_t num_carry = 0;
};

struct WhileView {
  const Node& node;
  size_t num_carry = node.attrs_as<WhileAttrs>().num_carry;
  const Region& condition = *node.regions[0];
  const Region& body = *node.regions[1];
  size_t first_body_capture = condition.parameters.size();
};

void Print(Printer& p, const Node& n) {
  const WhileView w{n};
  const std::string loop = p.FreshName(), types = MlirTypes(n.results);
  std::string inits;
  std::vector<std::string> arguments;
  for (size_t i = 0; i < w.num_carry; ++i) {
    arguments.push_back(p.FreshName());
    inits += fmt::format("{}{} = {}", i ? ", " : "", arguments.back(), p.Name(n.operands[i]));
  }
  const auto with_captures = [&](size_t first, size_t count) {
    std::vector<std::string> all = arguments;
    for (size_t i = 0; i < count; ++i) all.emplace_back(p.Name(n.operands[first + i]));
    return all;
  };
  p.EmitLine(fmt::format("{}:{} = stablehlo.while({}) : {}", loop, n.results.size(), inits, types));
  p.Indent();
  p.EmitLine("cond {");
  p.Indent();
  const std::vector<std::string> more = p.Inline(
      w.condition, with_captures(w.num_carry, w.condition.parameters.size() - w.num_carry));
  p.EmitLine(fmt::format("stablehlo.return {} : tensor<i1>", more[0]));
  p.Dedent();
  p.EmitLine("} do {");
  p.Indent();
  const std::vector<std::string> next =
      p.Inline(w.body, with_captures(w.first_body_capture, w.body.parameters.size() - w.num_carry));
  p.EmitLine(fmt::format("stablehlo.return {} : {}", fmt::join(next, ", "), types));
  p.Dedent();
  p.EmitLine(fmt::format("}}{}", p.LocText(n)));
  p.Dedent();
  std::vector<std::string> bound;
  for (size_t i = 0; i < n.results.size(); ++i)
    bound.push_back(n.results.size() == 1 ? loop : fmt::format("{}#{}", loop, i));
  p.BindResults(n, bound);
}

void Evaluate(Interpreter& interpreter, const Node& n) {
  const WhileView w{n};
  std::vector<Interpreter::Replicas> all;
  for (Value v : n.operands) all.push_back(interpreter.Get(v));
  const auto begin = all.begin();
  std::vector<Interpreter::Replicas> carry(begin, begin + static_cast<int64_t>(w.num_carry));
  const auto with_captures = [&](size_t first, size_t count) {
    std::vector<Interpreter::Replicas> arguments = carry;
    arguments.insert(arguments.end(), begin + static_cast<int64_t>(first),
                     begin + static_cast<int64_t>(first + count));
    return arguments;
  };
  // Inside a manual region devices may stop at different steps: the others go on alone.
  const auto going_on = [&] {
    const Interpreter::Replicas flags = interpreter.Run(
        w.condition, with_captures(w.num_carry, w.condition.parameters.size() - w.num_carry))[0];
    std::vector<size_t> replicas;
    for (size_t r = 0; r < flags.size(); ++r) {
      if (flags[r].data[0] != 0) replicas.push_back(r);
    }
    return replicas;
  };
  for (std::vector<size_t> replicas = going_on(); !replicas.empty(); replicas = going_on()) {
    std::vector<Interpreter::Replicas> next = interpreter.Run(
        w.body, with_captures(w.first_body_capture, w.body.parameters.size() - w.num_carry));
    for (size_t i = 0; i < carry.size(); ++i) {
      for (size_t r : replicas) carry[i][r] = std::move(next[i][r]);
    }
  }
  for (size_t i = 0; i < w.num_carry; ++i)
    interpreter.Set(Value(const_cast<Node*>(&n), static_cast<int64_t>(i)), carry[i]);
}

}  // namespace

const OpDef kWhile = {.name = "stablehlo.while", .print = Print, .evaluate_all = Evaluate};

Values While(Values init, const std::function<Value(Values)>& condition,
             const std::function<Values(Values)>& body, Loc loc) {
  CHECK_AT(loc, !init.empty(), "{}: no carry", kWhile.name);
  Graph& graph = init[0].graph();
  std::vector<TensorType> types;
  Values operands = init;
  std::vector<Region*> regions;
  for (Value v : init) types.push_back(v.type());
  const auto open = [&](const std::function<Values(Values)>& build) {
    Region& region = graph.NewRegion();
    Values parameters;
    for (const TensorType& type : types) parameters.push_back(region.AddParameter(type, loc));
    graph.InRegion(region, [&] {
      for (Value v : build(parameters)) region.results.push_back(region.Import(v));
    });
    operands.insert(operands.end(), region.captured.begin(), region.captured.end());
    regions.push_back(&region);
    return region.results;
  };
  const Values more = open([&](Values carry) { return Values{condition(std::move(carry))}; });
  CHECK_AT(loc, more[0].type() == (TensorType{DType::kBool, {}}),
           "{}: the condition is {}, wants a bool scalar", kWhile.name, more[0].type().ToString());
  const Values next = open(body);
  CHECK_AT(loc, next.size() == init.size(), "{}: the body returns {} values, it was given {}",
           kWhile.name, next.size(), init.size());
  for (size_t i = 0; i < next.size(); ++i) {
    CHECK_AT(loc, next[i].type() == types[i], "{}: carry {} is {} on entry and {} after a step",
             kWhile.name, i, types[i].ToString(), next[i].type().ToString());
  }
  auto attrs = std::make_shared<WhileAttrs>();
  attrs->num_carry = init.size();
  return graph
      .AddNode(kWhile, std::move(operands), std::move(types), attrs, loc, std::move(regions))
      .AllResults();
}

}  // namespace ulmus::graph
