#include "graph/ops/op.h"

#include <algorithm>
#include <limits>

#include "graph/ops/reduce.h"

namespace ulmus::graph {

namespace {

struct ReduceAttrs : Attrs {
  Dims axes;
};

}  // namespace

OpDef ReduceOp(ReduceSpec spec, std::function<Value(const VjpContext&, const Dims&)> vjp) {
  OpDef op;
  op.name = spec.mlir_name;
  if (vjp) {
    op.vjp = [vjp](const VjpContext& c) {
      return Values{vjp(c, c.node.attrs_as<ReduceAttrs>().axes), Value()};
    };
  }
  op.print = [spec](Printer& p, const Node& n) {
    const Value init = n.operands[1];
    p.Emit(n, "stablehlo.reduce({} init: {}) applies {} across dimensions = {} : ({}) -> {}",
           p.Name(n.operands[0]), p.Name(init), spec.mlir_name,
           ListText(n.attrs_as<ReduceAttrs>().axes), p.Types(n.operands), MlirType(n.results[0]));
  };
  op.evaluate = [spec](const Node& n, std::span<const RefTensor* const> in) {
    RefTensor out = RefTensor::Zeros(n.results[0]);
    std::fill(out.data.begin(), out.data.end(), in[1]->data[0]);
    const Dims& axes = n.attrs_as<ReduceAttrs>().axes;
    ForEachIndex(in[0]->type.shape, [&](const Dims& index, int64_t flat) {
      Dims kept;
      for (size_t d = 0; d < index.size(); ++d) {
        if (!std::ranges::binary_search(axes, static_cast<int64_t>(d))) kept.push_back(index[d]);
      }
      double& cell = out.data[static_cast<size_t>(FlatIndex(out.type.shape, kept))];
      cell = spec.combine(cell, in[0]->data[static_cast<size_t>(flat)]);
    });
    return std::vector{std::move(out)};
  };
  return op;
}

Value MakeReduce(const OpDef& op, Value x, Dims axes, double neutral, const Loc& loc) {
  for (int64_t& axis : axes) axis = NormalizeAxis(op, axis, x.rank(), loc);
  std::ranges::sort(axes);
  CHECK_AT(loc, std::ranges::adjacent_find(axes) == axes.end(), "{}: an axis of {} is named twice",
           op.name, ListText(axes));
  if (axes.empty()) return x;
  Dims kept;
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (!std::ranges::binary_search(axes, d)) kept.push_back(x.dim(d));
  }
  auto attrs = std::make_shared<ReduceAttrs>();
  attrs->axes = std::move(axes);
  const Value init = Splat(x.graph(), neutral, {x.dtype(), {}}, loc);
  return MakeValue(op, {x, init}, {x.dtype(), Shape(kept)}, loc, attrs);
}

Value SpreadOver(Value reduced, Value like, const Dims& axes) {
  Dims kept;
  for (int64_t d = 0; d < like.rank(); ++d) {
    if (!std::ranges::binary_search(axes, d)) kept.push_back(d);
  }
  return BroadcastInDim(reduced, like.shape(), kept);
}

Value ExtremumVjp(const VjpContext& c, const Dims& axes) {
  const Value x = c.operand(0);
  const Value hit = Compare(Cmp::kEq, x, SpreadOver(c.result(), x, axes));
  const Value share = Select(hit, SplatLike(x, 1), ZerosLike(x));
  const Value each = Div(c.cotangent(), ReduceSum(share, axes));
  return Mul(share, SpreadOver(each, x, axes));
}

double HighestValue(DType dtype) {
  if (IsFloat(dtype)) return std::numeric_limits<double>::infinity();
  return RoundTo(dtype, std::numeric_limits<double>::infinity());
}

double LowestValue(DType dtype) {
  if (IsFloat(dtype)) return -std::numeric_limits<double>::infinity();
  return RoundTo(dtype, -std::numeric_limits<double>::infinity());
}

}  // namespace ulmus::graph
