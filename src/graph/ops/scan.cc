#include "graph/ops/op.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "graph/autodiff.h"

namespace ulmus::graph {

namespace {

struct ScanAttrs : Attrs {
  int64_t length = 0;
  bool reverse = false;
  int64_t num_carry = 0, num_xs = 0;
};

// operands: carry, xs (stacked), captured. body parameters: carry, xs (one slice), captured. body
// results: carry, ys (one slice). results: last carry, ys (stacked).
struct ScanView {
  const Node& node;
  const ScanAttrs& attrs = node.attrs_as<ScanAttrs>();
  const Region& body = *node.regions[0];
  size_t num_carry = static_cast<size_t>(attrs.num_carry),
         num_xs = static_cast<size_t>(attrs.num_xs);
  size_t num_operands = node.operands.size();
  size_t num_ys = node.results.size() - num_carry;
};

TensorType Stacked(const TensorType& type, int64_t length) {
  Dims dims = type.shape.dims();
  dims.insert(dims.begin(), length);
  return {type.dtype, Shape(dims)};
}

TensorType Slice0(const TensorType& type) {
  return {type.dtype, Shape(Dims(type.shape.dims().begin() + 1, type.shape.dims().end()))};
}

const char* ZeroText(DType dtype) {
  return dtype == DType::kBool ? "false" : IsFloat(dtype) ? "0.0" : "0";
}

// Sums over iterations are kept in f32 at least.
DType AccumulatorType(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype;
}

Node& MakeScan(Graph& graph, Values init, Values xs, Region& body, const ScanAttrs& attrs,
               const Loc& loc) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < body.results.size(); ++i) {
    const TensorType& type = body.results[i].type();
    types.push_back(static_cast<int64_t>(i) < attrs.num_carry ? type : Stacked(type, attrs.length));
  }
  Values operands = std::move(init);
  operands.insert(operands.end(), xs.begin(), xs.end());
  operands.insert(operands.end(), body.captured.begin(), body.captured.end());
  return graph.AddNode(kScan, std::move(operands), std::move(types),
                       std::make_shared<ScanAttrs>(attrs), loc, {&body});
}

void Print(Printer& p, const Node& n) {
  const ScanView s{n};
  const int64_t length = s.attrs.length;
  const std::string zero = p.IntConstant(0), one = p.IntConstant(1), count = p.IntConstant(length);
  const std::string last = s.attrs.reverse ? p.IntConstant(length - 1) : "";
  const std::string loop = p.FreshName(), step = p.FreshName();
  const std::string i32 = MlirType({DType::kI32, {}});

  std::string inits = fmt::format("{} = {}", step, zero), types = i32;
  std::vector<std::string> arguments, stacks;
  for (size_t i = 0; i < s.num_carry + s.num_ys; ++i) {
    const TensorType& type = n.results[i];
    std::string init;
    if (i < s.num_carry) {
      init = p.Name(n.operands[i]);
    } else {  // a broadcast zero lets XLA fill the stack in place
      const std::string scalar = p.EmitTemp(fmt::format(
          "stablehlo.constant dense<{}> : {}", ZeroText(type.dtype), MlirType({type.dtype, {}})));
      init = p.EmitTemp(fmt::format("stablehlo.broadcast_in_dim {}, dims = [] : ({}) -> {}", scalar,
                                    MlirType({type.dtype, {}}), MlirType(type)));
    }
    const std::string name = p.FreshName();
    inits += fmt::format(", {} = {}", name, init);
    types += ", " + MlirType(type);
    (i < s.num_carry ? arguments : stacks).push_back(name);
  }
  p.EmitLine(
      fmt::format("{}:{} = stablehlo.while({}) : {}", loop, n.results.size() + 1, inits, types));
  p.Indent();
  p.EmitLine("cond {");
  p.Indent();
  const std::string more = p.EmitTemp(fmt::format(
      "stablehlo.compare LT, {}, {}, SIGNED : ({}, {}) -> tensor<i1>", step, count, i32, i32));
  p.EmitLine(fmt::format("stablehlo.return {} : tensor<i1>", more));
  p.Dedent();
  p.EmitLine("} do {");
  p.Indent();
  const std::string index =
      s.attrs.reverse ? p.EmitTemp(fmt::format("stablehlo.subtract {}, {} : {}", last, step, i32))
                      : step;
  const auto position = [&](int64_t rank) {  // "%index, %zero, %zero" and their types
    std::string names = index, index_types = i32;
    for (int64_t d = 1; d < rank; ++d) names += ", " + zero, index_types += ", " + i32;
    return std::pair{names, index_types};
  };
  for (size_t i = s.num_carry; i < s.num_carry + s.num_xs; ++i) {
    const TensorType &whole = n.operands[i].type(), slice = Slice0(whole), row = Stacked(slice, 1);
    const auto [names, index_types] = position(whole.shape.rank());
    const std::string cut = p.EmitTemp(fmt::format(
        "stablehlo.dynamic_slice {}, {}, sizes = {} : ({}, {}) -> {}", p.Name(n.operands[i]), names,
        ListText(row.shape.dims()), MlirType(whole), index_types, MlirType(row)));
    arguments.push_back(p.EmitTemp(
        fmt::format("stablehlo.reshape {} : ({}) -> {}", cut, MlirType(row), MlirType(slice))));
  }
  for (size_t i = s.num_carry + s.num_xs; i < s.num_operands; ++i)
    arguments.emplace_back(p.Name(n.operands[i]));
  std::vector<std::string> results = p.Inline(s.body, arguments);
  for (size_t y = 0; y < s.num_ys; ++y) {
    const TensorType &whole = n.results[s.num_carry + y], slice = Slice0(whole),
                     row = Stacked(slice, 1);
    const auto [names, index_types] = position(whole.shape.rank());
    std::string& result = results[s.num_carry + y];
    const std::string block = p.EmitTemp(
        fmt::format("stablehlo.reshape {} : ({}) -> {}", result, MlirType(slice), MlirType(row)));
    result = p.EmitTemp(
        fmt::format("stablehlo.dynamic_update_slice {}, {}, {} : ({}, {}, {}) -> {}", stacks[y],
                    block, names, MlirType(whole), MlirType(row), index_types, MlirType(whole)));
  }
  const std::string next = p.EmitTemp(fmt::format("stablehlo.add {}, {} : {}", step, one, i32));
  p.EmitLine(fmt::format("stablehlo.return {}, {} : {}", next, fmt::join(results, ", "), types));
  p.Dedent();
  p.EmitLine(fmt::format("}}{}", p.LocText(n)));
  p.Dedent();
  std::vector<std::string> bound;
  for (size_t i = 0; i < n.results.size(); ++i) bound.push_back(fmt::format("{}#{}", loop, i + 1));
  p.BindResults(n, bound);
}

void Evaluate(Interpreter& interpreter, const Node& n) {
  const ScanView s{n};
  using Replicas = Interpreter::Replicas;
  std::vector<Replicas> values, stacks;
  for (Value v : n.operands) values.push_back(interpreter.Get(v));
  const auto replicas = static_cast<size_t>(interpreter.num_replicas());
  for (size_t y = 0; y < s.num_ys; ++y)
    stacks.emplace_back(replicas, RefTensor::Zeros(n.results[s.num_carry + y]));
  for (int64_t step = 0; step < s.attrs.length; ++step) {
    const auto index = static_cast<size_t>(s.attrs.reverse ? s.attrs.length - 1 - step : step);
    std::vector<Replicas> arguments = values;
    for (size_t i = s.num_carry; i < s.num_carry + s.num_xs; ++i) {
      for (size_t r = 0; r < replicas; ++r) {
        RefTensor slice = RefTensor::Zeros(Slice0(n.operands[i].type()));
        const size_t size = slice.data.size();
        std::copy_n(values[i][r].data.begin() + static_cast<int64_t>(index * size), size,
                    slice.data.begin());
        arguments[i][r] = std::move(slice);
      }
    }
    std::vector<Replicas> results = interpreter.Run(s.body, arguments);
    for (size_t y = 0; y < s.num_ys; ++y) {
      for (size_t r = 0; r < replicas; ++r) {
        const std::vector<double>& slice = results[s.num_carry + y][r].data;
        std::copy(slice.begin(), slice.end(),
                  stacks[y][r].data.begin() + static_cast<int64_t>(index * slice.size()));
      }
    }
    for (size_t i = 0; i < s.num_carry; ++i) values[i] = std::move(results[i]);
  }
  auto* shared = const_cast<Node*>(&n);
  for (size_t i = 0; i < n.results.size(); ++i) {
    interpreter.Set(Value(shared, static_cast<int64_t>(i)),
                    i < s.num_carry ? values[i] : stacks[i - s.num_carry]);
  }
}

// Which body parameters carry a dependence on the needed operands: the carry feeds itself, so
// iterate to a fixed point.
std::vector<bool> PerturbedParameters(const ScanView& s, const std::vector<bool>& needed) {
  std::vector<bool> perturbed = needed;
  for (bool changed = true; changed;) {
    changed = false;
    const std::vector<bool> results = DependingResults(s.body, perturbed);
    for (size_t i = 0; i < s.num_carry; ++i) {
      if (results[i] && !perturbed[i]) perturbed[i] = changed = true;
    }
  }
  return perturbed;
}

// The backward pass is a scan in the other direction. Its carry: cotangents of the forward carry,
// and sums for captured values. Its xs: cotangents of ys, the forward xs, and the forward values it
// needs, which the forward scan is made to stack as further ys.
Values Vjp(const VjpContext& c) {
  Node& node = c.node;
  Region& body = *node.regions[0];
  Graph& graph = *body.graph;
  const ScanView s{node};
  const size_t num_forward_ys = s.num_ys;
  const std::vector<bool> perturbed = PerturbedParameters(s, c.needed);
  const size_t first_captured = s.num_carry + s.num_xs;

  std::vector<TensorType> residual_types;
  Values residuals;    // values of the forward body
  Values xs_operands;  // of the backward scan, in the order of its parameters
  Region* backward = nullptr;
  const auto add_xs = [&](Value operand, const TensorType& slice) {
    xs_operands.push_back(operand);
    return backward->AddParameter(slice, node.loc);
  };
  backward = &NewBackwardRegion(
      body,
      [&](Region& self, int64_t index) -> Value {
        const auto i = static_cast<size_t>(index);
        if (i < s.num_carry) return {};
        if (i >= first_captured) return self.Import(node.operands[i]);
        return add_xs(node.operands[i], Slice0(node.operands[i].type()));
      },
      [&](Region&, Value v) -> Value {
        // Stacked already, for the caller or for another gradient.
        const auto stacked = std::find(body.results.begin() + static_cast<int64_t>(s.num_carry),
                                       body.results.end(), v);
        if (stacked != body.results.end())
          return add_xs(node.result(stacked - body.results.begin()), v.type());
        residuals.push_back(v);
        residual_types.push_back(Stacked(v.type(), s.attrs.length));
        return add_xs(Value(), v.type());  // filled in once the forward scan returns it
      });

  // Explicit parameters of the backward body.
  Values init, carry_cts, captured_sums;
  for (size_t i = 0; i < s.num_carry; ++i) {
    if (!perturbed[i]) continue;
    init.push_back(c.cotangent(static_cast<int64_t>(i)));
    carry_cts.push_back(backward->AddParameter(node.results[i], node.loc));
  }
  for (size_t i = first_captured; i < s.num_operands; ++i) {
    if (!c.needed[i]) continue;
    const TensorType sum{AccumulatorType(node.operands[i].dtype()), node.operands[i].shape()};
    init.push_back(Splat(graph, 0, sum, node.loc));
    captured_sums.push_back(backward->AddParameter(sum, node.loc));
  }
  Values outputs, cotangents, wrt;
  for (size_t i = 0, next = 0; i < s.num_carry; ++i) {
    if (!perturbed[i]) continue;
    outputs.push_back(body.results[i]);
    cotangents.push_back(carry_cts[next++]);
    wrt.push_back(body.parameter(static_cast<int64_t>(i)));
  }
  for (size_t y = 0; y < num_forward_ys; ++y) {
    const Value ct = c.cotangents[s.num_carry + y];
    if (!ct) continue;
    outputs.push_back(body.results[s.num_carry + y]);
    cotangents.push_back(add_xs(ct, body.results[s.num_carry + y].type()));
  }
  const size_t num_carry_wrt = wrt.size();
  for (size_t i = s.num_carry; i < s.num_operands; ++i) {
    if (c.needed[i]) wrt.push_back(body.parameter(static_cast<int64_t>(i)));
  }

  graph.InRegion(*backward, [&] {
    const Values grads = Backprop(WholeRegion(body), outputs, cotangents, wrt);
    Values carry, ys;
    for (size_t i = 0; i < num_carry_wrt; ++i)
      carry.push_back(grads[i] ? grads[i] : ZerosLike(wrt[i], node.loc));
    size_t next = num_carry_wrt;
    for (size_t i = s.num_carry; i < first_captured; ++i) {
      if (!c.needed[i]) continue;
      ys.push_back(grads[next] ? grads[next] : ZerosLike(wrt[next], node.loc));
      ++next;
    }
    for (Value sum : captured_sums) {
      carry.push_back(grads[next] ? Add(sum, Convert(grads[next], sum.dtype())) : sum);
      ++next;
    }
    for (Value v : carry) backward->results.push_back(backward->Import(v));
    for (Value v : ys) backward->results.push_back(backward->Import(v));
  });
  backward->importer = nullptr;  // it refers to this call's locals

  // The forward scan keeps what the backward pass asked for.
  const size_t first_residual = node.results.size();
  node.results.insert(node.results.end(), residual_types.begin(), residual_types.end());
  body.results.insert(body.results.end(), residuals.begin(), residuals.end());
  size_t next_residual = first_residual;
  for (Value& x : xs_operands) {
    if (!x) x = node.result(static_cast<int64_t>(next_residual++));
  }

  ScanAttrs attrs;
  attrs.length = s.attrs.length;
  attrs.reverse = !s.attrs.reverse;
  attrs.num_carry = static_cast<int64_t>(init.size());
  attrs.num_xs = static_cast<int64_t>(xs_operands.size());
  Node& scan = MakeScan(graph, init, xs_operands, *backward, attrs, node.loc);

  Values cts(s.num_operands);
  int64_t next_carry = 0, next_ys = attrs.num_carry;
  for (size_t i = 0; i < s.num_carry; ++i) {
    if (perturbed[i]) cts[i] = scan.result(next_carry++);
  }
  for (size_t i = s.num_carry; i < first_captured; ++i) {
    if (c.needed[i]) cts[i] = scan.result(next_ys++);
  }
  for (size_t i = first_captured; i < s.num_operands; ++i) {
    if (c.needed[i]) cts[i] = Convert(scan.result(next_carry++), node.operands[i].dtype());
  }
  return cts;
}

}  // namespace

const OpDef kScan = {.name = "scan", .vjp = Vjp, .print = Print, .evaluate_all = Evaluate};

ScanStep Scan(Values init, Values xs, const std::function<ScanStep(Values, Values)>& body,
              ScanOptions options, Loc loc) {
  CHECK_AT(loc, !init.empty() || !xs.empty(), "scan: neither a carry nor xs");
  for (Value x : xs) {
    CHECK_AT(loc, x.rank() >= 1 && (options.length < 0 || x.dim(0) == options.length),
             "scan: xs {} does not have the leading size {}", x.type().ToString(), options.length);
    options.length = x.dim(0);
  }
  CHECK_AT(loc, options.length > 0,
           "scan: length {}; give ScanOptions::length when there are no xs", options.length);
  Graph& graph = (init.empty() ? xs[0] : init[0]).graph();
  Region& region = graph.NewRegion();
  Values carry, slices;
  for (Value v : init) carry.push_back(region.AddParameter(v.type(), loc));
  for (Value v : xs) slices.push_back(region.AddParameter(Slice0(v.type()), loc));
  graph.InRegion(region, [&] {
    const ScanStep step = body(carry, slices);
    CHECK_AT(loc, step.carry.size() == init.size(),
             "scan: the body returns {} carry values, it was given {}", step.carry.size(),
             init.size());
    for (size_t i = 0; i < init.size(); ++i) {
      CHECK_AT(loc, step.carry[i].type() == init[i].type(),
               "scan: carry {} is {} on entry and {} after a step", i, init[i].type().ToString(),
               step.carry[i].type().ToString());
      region.results.push_back(region.Import(step.carry[i]));
    }
    for (Value y : step.ys) region.results.push_back(region.Import(y));
  });
  ScanAttrs attrs;
  attrs.length = options.length;
  attrs.reverse = options.reverse;
  attrs.num_carry = static_cast<int64_t>(init.size());
  attrs.num_xs = static_cast<int64_t>(xs.size());
  const Values all =
      MakeScan(graph, std::move(init), std::move(xs), region, attrs, loc).AllResults();
  return {Values(all.begin(), all.begin() + attrs.num_carry),
          Values(all.begin() + attrs.num_carry, all.end())};
}

}  // namespace ulmus::graph
