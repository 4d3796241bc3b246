#include "graph/ops/op.h"

#include <fmt/ranges.h>

#include <bit>
#include <cmath>

#include "graph/autodiff.h"
#include "graph/ops/inline_region.h"

namespace ulmus::graph {

namespace {

struct KernelCallAttrs : Attrs {
  const KernelDef* def = nullptr;
  KernelAttrs attrs;
};

std::string AttrText(const KernelAttr& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{} : i64", *i);
  if (const auto* f = std::get_if<float>(&value)) {
    return std::isfinite(*f) ? fmt::format("{:.9e} : f32", *f)
                             : fmt::format("0x{:08X} : f32", std::bit_cast<uint32_t>(*f));
  }
  return Quoted(std::get<std::string>(value));
}

// "[dense<[1, 0]> : tensor<2xindex>, ...]": row-major, whatever the compiler would rather have.
std::string Layouts(std::span<const TensorType> types) {
  std::vector<std::string> parts;
  for (const TensorType& type : types) {
    Dims minor_to_major;
    for (int64_t d = type.shape.rank(); d-- > 0;) minor_to_major.push_back(d);
    parts.push_back(type.shape.rank() == 0
                        ? std::string("dense<> : tensor<0xindex>")
                        : fmt::format("dense<{}> : tensor<{}xindex>", ListText(minor_to_major),
                                      type.shape.rank()));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

void Print(Printer& p, const Node& n) {
  const auto& [def, attrs] = n.attrs_as<KernelCallAttrs>();
  const auto target = def->targets.find(p.options().platform);
  if (!p.options().use_kernels || target == def->targets.end()) return PrintInline(p, n);
  p.NeedCustomCall(target->second);
  std::vector<std::string> config;
  for (const auto& [name, value] : attrs)
    config.push_back(fmt::format("{} = {}", name, AttrText(value)));
  std::vector<TensorType> operands;
  for (Value v : n.operands) operands.push_back(v.type());
  p.Emit(n,
         "stablehlo.custom_call @{}({}) {{api_version = 4 : i32, backend_config = {{{}}}, "
         "operand_layouts = {}, result_layouts = {}}} : ({}) -> ({})",
         target->second, p.Names(n.operands), fmt::join(config, ", "), Layouts(operands),
         Layouts(n.results), p.Types(n.operands), MlirTypes(n.results));
}

Values Vjp(const VjpContext& c) {
  const auto& [def, attrs] = c.node.attrs_as<KernelCallAttrs>();
  if (def->vjp) return def->vjp(attrs, c);
  // The portable form, run again and differentiated.
  Graph& graph = *c.node.region->graph;
  Region& current = graph.current();
  Values inputs, cotangents;
  for (Value v : c.node.operands) inputs.push_back(current.Import(v));
  for (Value ct : c.cotangents) cotangents.push_back(ct ? current.Import(ct) : Value());
  const size_t first = current.nodes.size();
  const Values outputs = graph.InlineCopy(*c.node.regions[0], inputs,
                                          [](const Node&, const Values&) { return Value(); });
  return BackpropToInputs({&current, first, current.nodes.size()}, outputs, cotangents, inputs,
                          c.needed);
}

}  // namespace

const OpDef kKernelCall = {
    .name = "kernel_call", .vjp = Vjp, .print = Print, .evaluate_all = EvaluateInline};

Values KernelCall(const KernelDef& def, KernelAttrs attrs, Values inputs, Loc loc) {
  Region& region = TraceRegion(
      inputs, [&](Values parameters) { return def.portable(attrs, std::move(parameters)); }, loc);
  CHECK_AT(loc, region.captured.empty(), "kernel '{}': the portable form uses a value from outside",
           def.name);
  auto node_attrs = std::make_shared<KernelCallAttrs>();
  node_attrs->def = &def;
  node_attrs->attrs = std::move(attrs);
  return MakeInlineNode(kKernelCall, std::move(inputs), region, node_attrs, loc).AllResults();
}

}  // namespace ulmus::graph
