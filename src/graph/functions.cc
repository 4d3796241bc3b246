#include "graph/functions.h"

namespace ulmus::graph {
namespace {

Value AtLeastF32(Value x, const Loc& loc) {
  return x.dtype() == DType::kF64 ? x : Convert(x, DType::kF32, loc);
}

// y, a reduction of x over its last axis, spread back to x's shape.
Value SpreadLast(Value y, Value x, const Loc& loc) {
  Dims axes;
  for (int64_t d = 0; d + 1 < x.rank(); ++d) axes.push_back(d);
  return BroadcastInDim(y, x.shape(), axes, loc);
}

}  // namespace

Value BroadcastTo(Value x, Shape shape, Loc loc) {
  CHECK_AT(loc, x.rank() <= shape.rank(), "broadcast: {} to {}", x.shape().ToString(),
           shape.ToString());
  Dims axes;
  for (int64_t d = 0; d < x.rank(); ++d) axes.push_back(shape.rank() - x.rank() + d);
  return BroadcastInDim(x, std::move(shape), axes, loc);
}

Value Square(Value x, Loc loc) { return Mul(x, x, loc); }

Value Silu(Value x, Loc loc) { return Mul(x, Logistic(x, loc), loc); }

Value Mean(Value x, Dims axes, Loc loc) {
  int64_t count = 1;
  for (int64_t axis : axes) count *= x.dim(axis);
  const Value sum = ReduceSum(x, std::move(axes), loc);
  return Div(sum, SplatLike(sum, static_cast<double>(count), loc), loc);
}

Value LogSumExp(Value x, Loc loc) {
  const Value wide = AtLeastF32(x, loc);
  const Value top = StopGradient(ReduceMax(wide, {-1}, loc), loc);
  const Value sum = ReduceSum(Exp(Sub(wide, SpreadLast(top, wide, loc), loc), loc), {-1}, loc);
  return Add(Log(sum, loc), top, loc);
}

Value Softmax(Value x, Loc loc) {
  const Value wide = AtLeastF32(x, loc);
  const Value top = StopGradient(ReduceMax(wide, {-1}, loc), loc);
  const Value e = Exp(Sub(wide, SpreadLast(top, wide, loc), loc), loc);
  return Convert(Div(e, SpreadLast(ReduceSum(e, {-1}, loc), e, loc), loc), x.dtype(), loc);
}

Value TakeAlongLast(Value x, Value ids, Loc loc) {
  const Value places = Iota(x.graph(), {ids.dtype(), x.shape()}, -1, loc);
  const Value hit = Compare(Cmp::kEq, places, SpreadLast(ids, x, loc), loc);
  return ReduceSum(Select(hit, x, ZerosLike(x, loc), loc), {-1}, loc);
}

Value ArgMax(Value x, Loc loc) {
  const Value top = SpreadLast(ReduceMax(x, {-1}, loc), x, loc);
  const Value places = Iota(x.graph(), {DType::kI32, x.shape()}, -1, loc);
  const Value beyond = SplatLike(places, static_cast<double>(x.dim(-1)), loc);
  return ReduceMin(Select(Compare(Cmp::kEq, x, top, loc), places, beyond, loc), {-1}, loc);
}

Value PlaceAlong(Graph& graph, const std::vector<std::string>& axes, Loc loc) {
  Value place = Splat(graph, 0, {DType::kI32, {}}, loc);
  for (const std::string& axis : axes) {
    const Value size = SplatLike(place, static_cast<double>(graph.mesh().AxisSize(axis)), loc);
    place = Add(Mul(place, size, loc), Convert(AxisIndex(graph, axis, loc), DType::kI32, loc), loc);
  }
  return place;
}

}  // namespace ulmus::graph
