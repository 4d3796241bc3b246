#include "graph/ops/op.h"

namespace ulmus::graph {

namespace {

struct SliceAttrs : Attrs {
  Dims starts, limits, strides;
};

}  // namespace

const OpDef kSlice = {
    .name = "stablehlo.slice",
    .vjp =
        [](const VjpContext& c) {
          // Padding with zeros puts every element back where it came from.
          const auto& a = c.node.attrs_as<SliceAttrs>();
          Dims high, interior;
          for (size_t d = 0; d < a.starts.size(); ++d) {
            const int64_t last = a.starts[d] + (c.result().shape().dims()[d] - 1) * a.strides[d];
            high.push_back(c.operand(0).shape().dims()[d] - 1 - last);
            interior.push_back(a.strides[d] - 1);
          }
          return Values{Pad(c.cotangent(), 0, a.starts, high, interior)};
        },
    .print =
        [](Printer& p, const Node& n) {
          const auto& a = n.attrs_as<SliceAttrs>();
          std::string ranges;
          for (size_t d = 0; d < a.starts.size(); ++d) {
            ranges +=
                fmt::format("{}{}:{}:{}", d ? ", " : "", a.starts[d], a.limits[d], a.strides[d]);
          }
          p.Emit(n, "stablehlo.slice {} [{}] : ({}) -> {}", p.Name(n.operands[0]), ranges,
                 p.Type(n.operands[0]), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          const auto& a = n.attrs_as<SliceAttrs>();
          Dims source(a.starts.size());
          ForEachIndex(out.type.shape, [&](const Dims& index, int64_t flat) {
            for (size_t d = 0; d < index.size(); ++d)
              source[d] = a.starts[d] + index[d] * a.strides[d];
            out.data[static_cast<size_t>(flat)] =
                in[0]->data[static_cast<size_t>(FlatIndex(in[0]->type.shape, source))];
          });
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value Slice(Value x, Dims starts, Dims limits, Dims strides, Loc loc) {
  if (strides.empty()) strides.assign(starts.size(), 1);
  const auto rank = static_cast<size_t>(x.rank());
  bool fits = starts.size() == rank && limits.size() == rank && strides.size() == rank;
  Dims dims;
  for (size_t d = 0; fits && d < rank; ++d) {
    fits = starts[d] >= 0 && starts[d] < limits[d] && limits[d] <= x.shape().dims()[d] &&
           strides[d] > 0;
    dims.push_back((limits[d] - starts[d] + strides[d] - 1) / strides[d]);
  }
  CHECK_AT(loc, fits, "{}: {} from {} to {} by {} does not lie in the tensor or is empty",
           kSlice.name, x.shape().ToString(), ListText(starts), ListText(limits),
           ListText(strides));
  if (Shape(dims) == x.shape()) return x;
  auto attrs = std::make_shared<SliceAttrs>();
  attrs->starts = std::move(starts), attrs->limits = std::move(limits),
  attrs->strides = std::move(strides);
  return MakeValue(kSlice, {x}, {x.dtype(), Shape(dims)}, loc, attrs);
}

}  // namespace ulmus::graph
