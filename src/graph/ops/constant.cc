#include "graph/ops/op.h"

#include <cmath>
#include <iterator>
#include <string>

namespace ulmus::graph {

namespace {

// One value for every element, or all values.
struct ConstantAttrs : Attrs {
  double splat = 0;
  std::shared_ptr<const HostTensor> values;
};

// A literal that MLIR reads back to the same bits.
std::string SplatText(double value, DType dtype) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (!IsFloat(dtype)) return fmt::format("{}", static_cast<int64_t>(value));
  if (std::isfinite(value)) return dtype == DType::kF64 ? fmt::format("{:.17e}", value) : fmt::format("{:.9e}", value);
  HostTensor bits(TensorType{dtype, {}});
  bits.Set(0, value);
  std::string hex;
  for (std::byte b : bits.bytes()) hex = fmt::format("{:02X}", static_cast<int>(b)) + hex;  // most significant first
  return "0x" + hex;
}

std::string ValuesText(const HostTensor& values) {
  if (values.dtype() == DType::kBool) {
    std::string list;
    Dims dims = values.shape().dims();
    // Bits are packed in hex form, so booleans are spelled out, one bracket per axis.
    const std::function<std::string(size_t, int64_t)> nested = [&](size_t axis, int64_t base) -> std::string {
      if (axis == dims.size()) return values.Get(base) != 0 ? "true" : "false";
      std::string text = "[";
      for (int64_t i = 0; i < dims[axis]; ++i) text += (i ? ", " : "") + nested(axis + 1, base * dims[axis] + i);
      return text + "]";
    };
    return nested(0, 0);
  }
  std::string hex = "\"0x";
  for (std::byte b : values.bytes()) fmt::format_to(std::back_inserter(hex), "{:02X}", static_cast<int>(b));
  return hex + "\"";
}

}  // namespace

const OpDef kConstant = {
    .name = "stablehlo.constant",
    .vjp = [](const VjpContext&) { return Values{}; },
    .print =
        [](Printer& p, const Node& n) {
          const auto& attrs = n.attrs_as<ConstantAttrs>();
          const std::string text = attrs.values ? ValuesText(*attrs.values) : SplatText(attrs.splat, n.results[0].dtype);
          p.Emit(n, "stablehlo.constant dense<{}> : {}", text, MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const>) {
          const auto& attrs = n.attrs_as<ConstantAttrs>();
          if (attrs.values) return std::vector{RefTensor::FromHost(*attrs.values)};
          RefTensor out = RefTensor::Zeros(n.results[0]);
          std::fill(out.data.begin(), out.data.end(), attrs.splat);
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value Splat(Graph& graph, double value, TensorType type, Loc loc) {
  auto attrs = std::make_shared<ConstantAttrs>();
  attrs->splat = RoundTo(type.dtype, value);
  return graph.AddNode(kConstant, {}, {std::move(type)}, attrs, loc).result();
}

Value Constant(Graph& graph, const HostTensor& value, Loc loc) {
  CHECK_AT(loc, value.num_elements() > 0, "constant {} has no elements", value.type().ToString());
  auto attrs = std::make_shared<ConstantAttrs>();
  if (value.num_elements() == 1) {
    attrs->splat = value.Get(0);
  } else {
    attrs->values = std::make_shared<const HostTensor>(value.Clone());
  }
  return graph.AddNode(kConstant, {}, {value.type()}, attrs, loc).result();
}

}  // namespace ulmus::graph
