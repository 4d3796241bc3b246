#include "graph/ops/op.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <string>

namespace ulmus::graph {

namespace {

// All values, or one that every element has. Kept as bits: doubles do not hold every i64, u64 and
// NaN.
struct ConstantAttrs : Attrs {
  HostTensor values;
};

// A literal that MLIR reads back to the same bits.
std::string SplatText(const HostTensor& value) {
  const DType dtype = value.dtype();
  const double number = value.Get(0);
  if (dtype == DType::kBool) return number != 0 ? "true" : "false";
  if (dtype == DType::kI64) return fmt::format("{}", value.values<int64_t>()[0]);
  if (dtype == DType::kU64) return fmt::format("{}", value.values<uint64_t>()[0]);
  if (!IsFloat(dtype)) return fmt::format("{}", static_cast<int64_t>(number));
  if (std::isfinite(number))
    return dtype == DType::kF64 ? fmt::format("{:.17e}", number) : fmt::format("{:.9e}", number);
  std::string hex;
  for (std::byte b : value.bytes())
    hex = fmt::format("{:02X}", static_cast<int>(b)) + hex;  // most significant first
  return "0x" + hex;
}

std::string ValuesText(const HostTensor& values) {
  if (values.dtype() == DType::kBool) {
    std::string list;
    Dims dims = values.shape().dims();
    // Bits are packed in hex form, so booleans are spelled out, one bracket per axis.
    const std::function<std::string(size_t, int64_t)> nested = [&](size_t axis,
                                                                   int64_t base) -> std::string {
      if (axis == dims.size()) return values.Get(base) != 0 ? "true" : "false";
      std::string text = "[";
      for (int64_t i = 0; i < dims[axis]; ++i)
        text += (i ? ", " : "") + nested(axis + 1, base * dims[axis] + i);
      return text + "]";
    };
    return nested(0, 0);
  }
  std::string hex = "\"0x";
  for (std::byte b : values.bytes())
    fmt::format_to(std::back_inserter(hex), "{:02X}", static_cast<int>(b));
  return hex + "\"";
}

}  // namespace

const OpDef kConstant = {
    .name = "stablehlo.constant",
    .vjp = [](const VjpContext&) { return Values{}; },
    .print =
        [](Printer& p, const Node& n) {
          const auto& attrs = n.attrs_as<ConstantAttrs>();
          const std::string text =
              attrs.values.num_elements() > 1 ? ValuesText(attrs.values) : SplatText(attrs.values);
          p.Emit(n, "stablehlo.constant dense<{}> : {}", text, MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const>) {
          const auto& attrs = n.attrs_as<ConstantAttrs>();
          if (attrs.values.num_elements() > 1)
            return std::vector{RefTensor::FromHost(attrs.values)};
          RefTensor out = RefTensor::Zeros(n.results[0]);
          std::fill(out.data.begin(), out.data.end(), attrs.values.Get(0));
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value Splat(Graph& graph, double value, TensorType type, Loc loc) {
  auto attrs = std::make_shared<ConstantAttrs>();
  attrs->values = HostTensor(TensorType{type.dtype, {}});
  // The ends of the 64-bit types are no doubles: what lies beyond becomes the end itself.
  if (type.dtype == DType::kI64 && value >= 0x1p63) {
    attrs->values.values<int64_t>()[0] = std::numeric_limits<int64_t>::max();
  } else if (type.dtype == DType::kU64 && value >= 0x1p64) {
    attrs->values.values<uint64_t>()[0] = std::numeric_limits<uint64_t>::max();
  } else {
    attrs->values.Set(0, value);
  }
  return graph.AddNode(kConstant, {}, {std::move(type)}, attrs, loc).result();
}

Value Constant(Graph& graph, const HostTensor& value, Loc loc) {
  CHECK_AT(loc, value.num_elements() > 0, "constant {} has no elements", value.type().ToString());
  auto attrs = std::make_shared<ConstantAttrs>();
  attrs->values = value.Clone();
  return graph.AddNode(kConstant, {}, {value.type()}, attrs, loc).result();
}

}  // namespace ulmus::graph
