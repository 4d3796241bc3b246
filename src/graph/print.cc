#include "graph/print.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "graph/ops/table.h"

namespace ulmus::graph {

std::string MlirType(const TensorType& type) {
  std::string dims;
  for (int64_t d : type.shape.dims()) dims += fmt::format("{}x", d);
  return fmt::format("tensor<{}{}>", dims, MlirName(type.dtype));
}

std::string MlirTypes(std::span<const TensorType> types) {
  std::vector<std::string> parts;
  for (const TensorType& type : types) parts.push_back(MlirType(type));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string ShardyText(const Sharding& sharding) {
  std::vector<std::string> dims;
  for (const auto& axes : sharding.dims) {
    std::vector<std::string> quoted;
    for (const std::string& axis : axes) quoted.push_back(fmt::format("\"{}\"", axis));
    dims.push_back(fmt::format("{{{}}}", fmt::join(quoted, ", ")));
  }
  return fmt::format("<@mesh, [{}]>", fmt::join(dims, ", "));
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    const bool plain = c >= ' ' && c != '"' && c != '\\' && c != '\x7f';
    quoted += plain ? std::string(1, c)
                    : fmt::format("\\{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return quoted + '"';
}

std::string_view Printer::Name(Value value) const {
  const auto it = names_.find({value.node(), value.index()});
  CHECK_AT(value.node()->loc, it != names_.end(), "{} is used before it is printed",
           value.node()->op->name);
  return it->second;
}

std::string Printer::Names(std::span<const Value> values) const {
  std::vector<std::string_view> parts;
  for (Value v : values) parts.push_back(Name(v));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string Printer::Types(std::span<const Value> values) const {
  std::vector<TensorType> types;
  for (Value v : values) types.push_back(v.type());
  return MlirTypes(types);
}

std::string Printer::FreshName() { return fmt::format("%{}", next_name_++); }

std::string Printer::LocText(const Node& node) const {
  if (!options_.locations) return "";
  const std::string line =
      fmt::format("{}:{}:{}", Quoted(node.loc.file_name()), node.loc.line(), node.loc.column());
  if (node.scope == nullptr) return fmt::format(" loc({})", line);
  return fmt::format(" loc({}({}))", Quoted(*node.scope), line);
}

void Printer::EmitLine(const std::string& text) {
  out_.append(static_cast<size_t>(indent_), ' ');
  out_ += text;
  out_ += '\n';
}

std::string Printer::EmitTemp(const std::string& text) {
  std::string name = FreshName();
  EmitLine(fmt::format("{} = {}", name, text));
  return name;
}

void Printer::EmitText(const Node& node, const std::string& text) {
  const std::string name = FreshName();
  const size_t count = node.results.size();
  auto* shared = const_cast<Node*>(&node);
  for (size_t i = 0; i < count; ++i) {
    Bind(Value(shared, static_cast<int64_t>(i)), count == 1 ? name : fmt::format("{}#{}", name, i));
  }
  EmitLine(count == 1 ? fmt::format("{} = {}{}", name, text, LocText(node))
                      : fmt::format("{}:{} = {}{}", name, count, text, LocText(node)));
}

std::string Printer::IntConstant(int64_t value) {
  return EmitTemp(fmt::format("stablehlo.constant dense<{}> : tensor<i32>", value));
}

std::vector<std::string> Printer::Inline(const Region& region,
                                         const std::vector<std::string>& arguments) {
  CHECK(arguments.size() == region.parameters.size(), "{} arguments for {} parameters",
        arguments.size(), region.parameters.size());
  for (size_t i = 0; i < arguments.size(); ++i) Bind(region.parameters[i]->result(), arguments[i]);
  for (const Node* node : region.nodes) {
    if (live_.contains(node)) node->op->print(*this, *node);
  }
  std::vector<std::string> results;
  for (Value v : region.results) results.emplace_back(Name(v));
  return results;
}

void Printer::BindResults(const Node& node, const std::vector<std::string>& names) {
  CHECK_AT(node.loc, names.size() == node.results.size(), "{}: {} names for {} results",
           node.op->name, names.size(), node.results.size());
  auto* shared = const_cast<Node*>(&node);
  for (size_t i = 0; i < names.size(); ++i) Bind(Value(shared, static_cast<int64_t>(i)), names[i]);
}

void Printer::MarkLive(const Region& region) {
  for (Value v : region.results) live_.insert(v.node());
  for (auto it = region.nodes.rbegin(); it != region.nodes.rend(); ++it) {
    const Node* node = *it;
    if (!live_.contains(node)) continue;
    for (Value operand : node->operands) live_.insert(operand.node());
    for (const Region* inner : node->regions) {
      if (marked_.insert(inner).second) MarkLive(*inner);  // functions are shared by their calls
    }
  }
}

std::string Printer::FunctionName(const Region& callee) {
  const auto it = function_names_.find(&callee);
  if (it != function_names_.end()) return it->second;
  functions_.push_back(&callee);
  return function_names_[&callee] = fmt::format("fn{}", function_names_.size());
}

std::string Printer::Function(const Region& region, const std::string& name, bool is_public) {
  out_.clear();
  const bool sharded = is_public && graph_.mesh().num_devices() > 1;
  std::vector<std::string> names, parameters, result_types;
  for (size_t i = 0; i < region.parameters.size(); ++i) {
    names.push_back(FreshName());
    std::vector<std::string> attributes;
    if (is_public) {
      const ProgramValue& argument = graph_.arguments()[i];
      if (sharded)
        attributes.push_back(
            fmt::format("sdy.sharding = #sdy.sharding{}", ShardyText(argument.sharding)));
      if (argument.donated_to >= 0)
        attributes.push_back(fmt::format("tf.aliasing_output = {} : i32", argument.donated_to));
    }
    const std::string suffix =
        attributes.empty() ? "" : fmt::format(" {{{}}}", fmt::join(attributes, ", "));
    parameters.push_back(
        fmt::format("{}: {}{}", names.back(), MlirType(region.parameters[i]->results[0]), suffix));
  }
  for (size_t i = 0; i < region.results.size(); ++i) {
    const std::string suffix = sharded ? fmt::format(" {{sdy.sharding = #sdy.sharding{}}}",
                                                     ShardyText(graph_.results()[i].sharding))
                                       : "";
    result_types.push_back(MlirType(region.results[i].type()) + suffix);
  }
  const std::vector<std::string> results = Inline(region, names);
  EmitLine(fmt::format("return {} : {}", fmt::join(results, ", "), Types(region.results)));
  return fmt::format("  func.func {} @{}({}) -> ({}) {{\n{}  }}\n",
                     is_public ? "public" : "private", name, fmt::join(parameters, ", "),
                     fmt::join(result_types, ", "), out_);
}

std::string Printer::Module() {
  CHECK(!graph_.results().empty(),
        "program '{}' has no results: nothing would run; declare them with Graph::Result",
        graph_.name());
  MarkLive(graph_.root());
  const bool bare = !graph_.name().empty() && std::ranges::all_of(graph_.name(), [](char c) {
    return c == '_' || std::isalnum(static_cast<unsigned char>(c));
  });
  std::string text = fmt::format("module @{} {{\n", bare ? graph_.name() : Quoted(graph_.name()));
  if (graph_.mesh().num_devices() > 1) {
    std::vector<std::string> axes;
    for (const MeshAxis& axis : graph_.mesh().axes())
      axes.push_back(fmt::format("\"{}\"={}", axis.name, axis.size));
    text += fmt::format("  sdy.mesh @mesh = <[{}]>\n", fmt::join(axes, ", "));
  }
  text += Function(graph_.root(), "main", true);
  for (size_t i = 0; i < functions_.size(); ++i) {  // grows while callees name further callees
    text += Function(*functions_[i], function_names_[functions_[i]], false);
  }
  return text + "}\n";
}

Program Graph::ToProgram(const ProgramOptions& options) const {
  Printer printer(*this, options);
  Program program;
  program.name = name_;
  program.text = printer.Module();
  program.mesh = mesh_;
  program.arguments = arguments_;
  program.results = results_;
  program.custom_calls.assign(printer.custom_calls().begin(), printer.custom_calls().end());
  return program;
}

}  // namespace ulmus::graph
