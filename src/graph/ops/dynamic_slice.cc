#include "graph/ops/op.h"

#include <algorithm>

#include "graph/ops/dynamic_slice.h"

namespace ulmus::graph {

namespace {

struct DynamicSliceAttrs : Attrs {
  Dims sizes;
};

}  // namespace

const OpDef kDynamicSlice = {
    .name = "stablehlo.dynamic_slice",
    .vjp =
        [](const VjpContext& c) {
          const Values starts(c.node.operands.begin() + 1, c.node.operands.end());
          Values cts(c.node.operands.size());
          cts[0] = DynamicUpdateSlice(ZerosLike(c.operand(0)), c.cotangent(), starts);
          return cts;
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.dynamic_slice {}, sizes = {} : ({}) -> {}", p.Names(n.operands),
                 ListText(n.attrs_as<DynamicSliceAttrs>().sizes), p.Types(n.operands),
                 MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          const Dims starts = ClampedStarts(in.subspan(1), in[0]->type.shape, out.type.shape);
          ForEachIndex(out.type.shape, [&](const Dims& index, int64_t flat) {
            Dims source = index;
            for (size_t d = 0; d < source.size(); ++d) source[d] += starts[d];
            out.data[static_cast<size_t>(flat)] =
                in[0]->data[static_cast<size_t>(FlatIndex(in[0]->type.shape, source))];
          });
          return std::vector{std::move(out)};
        },
};

Dims ClampedStarts(std::span<const RefTensor* const> starts, const Shape& whole,
                   const Shape& block) {
  Dims clamped;
  for (size_t d = 0; d < starts.size(); ++d) {
    clamped.push_back(std::clamp<int64_t>(static_cast<int64_t>(starts[d]->data[0]), 0,
                                          whole.dims()[d] - block.dims()[d]));
  }
  return clamped;
}

void CheckStarts(const OpDef& op, Value x, const Values& starts, const Shape& block,
                 const Loc& loc) {
  bool fits = static_cast<int64_t>(starts.size()) == x.rank() && block.rank() == x.rank();
  for (size_t d = 0; fits && d < starts.size(); ++d) {
    fits = starts[d].rank() == 0 && IsInt(starts[d].dtype()) &&
           starts[d].dtype() == starts[0].dtype() && block.dims()[d] >= 1 &&
           block.dims()[d] <= x.shape().dims()[d];
  }
  CHECK_AT(
      loc, fits,
      "{}: block {} of {} with {} starts; wants one integer scalar per axis and a block that fits",
      op.name, block.ToString(), x.shape().ToString(), starts.size());
}

Value DynamicSlice(Value x, Values starts, Dims sizes, Loc loc) {
  CheckStarts(kDynamicSlice, x, starts, Shape(sizes), loc);
  auto attrs = std::make_shared<DynamicSliceAttrs>();
  attrs->sizes = sizes;
  Values operands = {x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return MakeValue(kDynamicSlice, std::move(operands), {x.dtype(), Shape(std::move(sizes))}, loc,
                   attrs);
}

}  // namespace ulmus::graph
