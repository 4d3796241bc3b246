#include "graph/ops/op.h"

#include <algorithm>

namespace ulmus::graph {

namespace {

struct PadAttrs : Attrs {
  Dims low, high, interior;
};

}  // namespace

const OpDef kPad = {
    .name = "stablehlo.pad",
    .vjp =
        [](const VjpContext& c) {
          // Undo the outer padding (which may have been negative), then take every (interior +
          // 1)-th element.
          const auto& a = c.node.attrs_as<PadAttrs>();
          Dims low, high, strides;
          for (size_t d = 0; d < a.low.size(); ++d) {
            low.push_back(-a.low[d]), high.push_back(-a.high[d]),
                strides.push_back(a.interior[d] + 1);
          }
          const Value whole = Pad(c.cotangent(), 0, low, high);
          return Values{Slice(whole, Dims(a.low.size(), 0), whole.shape().dims(), strides),
                        Value()};
        },
    .print =
        [](Printer& p, const Node& n) {
          const auto& a = n.attrs_as<PadAttrs>();
          p.Emit(n, "stablehlo.pad {}, low = {}, high = {}, interior = {} : ({}) -> {}",
                 p.Names(n.operands), ListText(a.low), ListText(a.high), ListText(a.interior),
                 p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          const auto& a = n.attrs_as<PadAttrs>();
          RefTensor out = RefTensor::Zeros(n.results[0]);
          std::fill(out.data.begin(), out.data.end(), in[1]->data[0]);
          ForEachIndex(in[0]->type.shape, [&](const Dims& index, int64_t flat) {
            Dims target = index;
            for (size_t d = 0; d < target.size(); ++d) {
              target[d] = a.low[d] + index[d] * (a.interior[d] + 1);
              if (target[d] < 0 || target[d] >= out.type.shape.dims()[d]) return;
            }
            out.data[static_cast<size_t>(FlatIndex(out.type.shape, target))] =
                in[0]->data[static_cast<size_t>(flat)];
          });
          return std::vector{std::move(out)};
        },
};

Value Pad(Value x, double value, Dims low, Dims high, Dims interior, Loc loc) {
  if (interior.empty()) interior.assign(low.size(), 0);
  const auto rank = static_cast<size_t>(x.rank());
  CHECK_AT(loc, low.size() == rank && high.size() == rank && interior.size() == rank,
           "{}: {} padded by {}, {}, {}", kPad.name, x.shape().ToString(), ListText(low),
           ListText(high), ListText(interior));
  Dims dims;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t size = x.shape().dims()[d];
    dims.push_back(low[d] + high[d] + size + std::max<int64_t>(size - 1, 0) * interior[d]);
    CHECK_AT(loc, dims[d] > 0 && interior[d] >= 0,
             "{}: {} padded by low {}, high {}, interior {} leaves {}", kPad.name,
             x.shape().ToString(), ListText(low), ListText(high), ListText(interior),
             ListText(dims));
  }
  if (Shape(dims) == x.shape() && low == Dims(rank, 0)) return x;
  auto attrs = std::make_shared<PadAttrs>();
  attrs->low = std::move(low), attrs->high = std::move(high), attrs->interior = std::move(interior);
  return MakeValue(kPad, {x, Splat(x.graph(), value, {x.dtype(), {}}, loc)},
                   {x.dtype(), Shape(dims)}, loc, attrs);
}

}  // namespace ulmus::graph
