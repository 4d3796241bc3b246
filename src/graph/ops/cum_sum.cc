#include "graph/ops/op.h"

namespace ulmus::graph {

namespace {

struct CumSumAttrs : Attrs {
  int64_t axis = 0;
};

}  // namespace

const OpDef kCumSum = {
    .name = "cumulative_sum",
    .vjp =
        [](const VjpContext& c) {
          // Each element counts in all later sums: a cumulative sum from the other end.
          const int64_t axis = c.node.attrs_as<CumSumAttrs>().axis;
          return Values{Reverse(CumSum(Reverse(c.cotangent(), {axis}), axis), {axis}), Value()};
        },
    .print =
        [](Printer& p, const Node& n) {
          // A window as long as the axis, padded on the low side: XLA rewrites this form into a
          // logarithmic scan.
          const Shape& shape = n.results[0].shape;
          const auto axis = static_cast<size_t>(n.attrs_as<CumSumAttrs>().axis);
          Dims window(shape.dims().size(), 1);
          window[axis] = shape.dims()[axis];
          std::string padding;
          for (size_t d = 0; d < window.size(); ++d)
            padding += fmt::format("{}[{}, 0]", d ? ", " : "", d == axis ? window[axis] - 1 : 0);
          std::string sizes;
          for (size_t d = 0; d < window.size(); ++d)
            sizes += fmt::format("{}{}", d ? ", " : "", window[d]);
          const std::string a = p.FreshName(), b = p.FreshName(), sum = p.FreshName(),
                            t = MlirType({n.results[0].dtype, {}});
          p.Emit(n,
                 "\"stablehlo.reduce_window\"({}) <{{window_dimensions = array<i64: {}>, padding = "
                 "dense<[{}]> : tensor<{}x2xi64>}}> ({{\n"
                 "      ^bb0({}: {}, {}: {}):\n        {} = stablehlo.add {}, {} : {}\n        "
                 "stablehlo.return {} : {}\n      }}) : "
                 "({}) -> {}",
                 p.Names(n.operands), sizes, padding, window.size(), a, t, b, t, sum, a, b, t, sum,
                 t, p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = *in[0];
          const auto axis = static_cast<size_t>(n.attrs_as<CumSumAttrs>().axis);
          ForEachIndex(out.type.shape, [&](const Dims& index, int64_t flat) {
            if (index[axis] == 0) return;
            Dims before = index;
            --before[axis];
            out.data[static_cast<size_t>(flat)] +=
                out.data[static_cast<size_t>(FlatIndex(out.type.shape, before))];
          });
          return std::vector{std::move(out)};
        },
};

Value CumSum(Value x, int64_t axis, Loc loc) {
  auto attrs = std::make_shared<CumSumAttrs>();
  attrs->axis = NormalizeAxis(kCumSum, axis, x.rank(), loc);
  return MakeValue(kCumSum, {x, Splat(x.graph(), 0, {x.dtype(), {}}, loc)}, x.type(), loc, attrs);
}

}  // namespace ulmus::graph
