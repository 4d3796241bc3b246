#include "graph/ops/op.h"

#include <algorithm>
#include <numeric>

namespace ulmus::graph {

namespace {

struct DotAttrs : Attrs {
  DotDims dims;
  DotOptions options;
};

// Axes 0..rank-1 that are in neither list, in order.
Dims FreeAxes(int64_t rank, const Dims& batch, const Dims& contract) {
  Dims free;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::ranges::find(batch, d) == batch.end() &&
        std::ranges::find(contract, d) == contract.end())
      free.push_back(d);
  }
  return free;
}

Dims Range(int64_t first, size_t count) {
  Dims range(count);
  std::iota(range.begin(), range.end(), first);
  return range;
}

// Cotangent of one operand: ct contracted with `other` over other's free axes, axes put back in x's
// order.
//   ct axes: batch, free of lhs, free of rhs.
Value OperandVjp(Value ct, Value x, Value other, const Dims& batch, const Dims& contract,
                 const Dims& other_batch, const Dims& other_contract, bool x_is_lhs,
                 const DotOptions& options) {
  const Dims free = FreeAxes(x.rank(), batch, contract),
             other_free = FreeAxes(other.rank(), other_batch, other_contract);
  const auto num_batch = static_cast<int64_t>(batch.size());
  const int64_t other_first = x_is_lhs ? num_batch + static_cast<int64_t>(free.size()) : num_batch;
  DotOptions same = options;
  same.result = options.result;
  // Result axes: batch, free of ct (= free of x), free of other (= its contracted axes, in other's
  // order).
  const Value product = DotGeneral(
      ct, other,
      {Range(0, batch.size()), other_batch, Range(other_first, other_free.size()), other_free},
      same);
  Dims order(static_cast<size_t>(x.rank()));  // product axis for each axis of x
  int64_t next = 0;
  for (int64_t axis : batch) order[static_cast<size_t>(axis)] = next++;
  for (int64_t axis : free) order[static_cast<size_t>(axis)] = next++;
  Dims sorted = other_contract;
  std::ranges::sort(sorted);
  for (int64_t axis : sorted) {
    const auto pair =
        static_cast<size_t>(std::ranges::find(other_contract, axis) - other_contract.begin());
    order[static_cast<size_t>(contract[pair])] = next++;
  }
  return Convert(Transpose(product, order), x.dtype());
}

void Evaluate(const DotDims& dims, const RefTensor& x, const RefTensor& y, RefTensor& out) {
  const Shape &xs = x.type.shape, &ys = y.type.shape;
  const Dims x_free = FreeAxes(xs.rank(), dims.lhs_batch, dims.lhs_contract),
             y_free = FreeAxes(ys.rank(), dims.rhs_batch, dims.rhs_contract);
  Dims sizes;
  for (int64_t axis : dims.lhs_contract) sizes.push_back(xs.dim(axis));
  Dims xi(static_cast<size_t>(xs.rank())), yi(static_cast<size_t>(ys.rank()));
  ForEachIndex(out.type.shape, [&](const Dims& index, int64_t flat) {
    size_t next = 0;
    for (size_t i = 0; i < dims.lhs_batch.size(); ++i, ++next) {
      xi[static_cast<size_t>(dims.lhs_batch[i])] = yi[static_cast<size_t>(dims.rhs_batch[i])] =
          index[next];
    }
    for (int64_t axis : x_free) xi[static_cast<size_t>(axis)] = index[next++];
    for (int64_t axis : y_free) yi[static_cast<size_t>(axis)] = index[next++];
    double sum = 0;
    ForEachIndex(Shape(sizes), [&](const Dims& k, int64_t) {
      for (size_t i = 0; i < k.size(); ++i) {
        xi[static_cast<size_t>(dims.lhs_contract[i])] =
            yi[static_cast<size_t>(dims.rhs_contract[i])] = k[i];
      }
      sum += x.data[static_cast<size_t>(FlatIndex(xs, xi))] *
             y.data[static_cast<size_t>(FlatIndex(ys, yi))];
    });
    out.data[static_cast<size_t>(flat)] = sum;
  });
}

}  // namespace

const OpDef kDotGeneral = {
    .name = "stablehlo.dot_general",
    .vjp =
        [](const VjpContext& c) {
          const auto& [d, options] = c.node.attrs_as<DotAttrs>();
          // The cotangent is multiplied in the operands' dtype, as the forward product was.
          const Value x = c.operand(0), y = c.operand(1), ct = Convert(c.cotangent(), x.dtype());
          Values cts(2);
          if (c.needed[0])
            cts[0] = OperandVjp(ct, x, y, d.lhs_batch, d.lhs_contract, d.rhs_batch, d.rhs_contract,
                                true, options);
          if (c.needed[1])
            cts[1] = OperandVjp(ct, y, x, d.rhs_batch, d.rhs_contract, d.lhs_batch, d.lhs_contract,
                                false, options);
          return cts;
        },
    .print =
        [](Printer& p, const Node& n) {
          const auto& [d, options] = n.attrs_as<DotAttrs>();
          const std::string batch = d.lhs_batch.empty()
                                        ? ""
                                        : fmt::format("batching_dims = {} x {}, ",
                                                      ListText(d.lhs_batch), ListText(d.rhs_batch));
          const char* precision =
              options.highest_precision ? ", precision = [HIGHEST, HIGHEST]" : "";
          p.Emit(n, "stablehlo.dot_general {}, {}contracting_dims = {} x {}{} : ({}) -> {}",
                 p.Names(n.operands), batch, ListText(d.lhs_contract), ListText(d.rhs_contract),
                 precision, p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          Evaluate(n.attrs_as<DotAttrs>().dims, *in[0], *in[1], out);
          return std::vector{std::move(out)};
        },
};

Value DotGeneral(Value x, Value y, DotDims d, DotOptions options, Loc loc) {
  const auto in_range = [](const Dims& axes, Value v) {
    return std::ranges::all_of(axes, [&](int64_t axis) { return axis >= 0 && axis < v.rank(); });
  };
  bool fits = x.dtype() == y.dtype() && d.lhs_batch.size() == d.rhs_batch.size() &&
              d.lhs_contract.size() == d.rhs_contract.size() && in_range(d.lhs_batch, x) &&
              in_range(d.lhs_contract, x) && in_range(d.rhs_batch, y) &&
              in_range(d.rhs_contract, y);
  for (size_t i = 0; fits && i < d.lhs_batch.size(); ++i)
    fits = x.dim(d.lhs_batch[i]) == y.dim(d.rhs_batch[i]);
  for (size_t i = 0; fits && i < d.lhs_contract.size(); ++i)
    fits = x.dim(d.lhs_contract[i]) == y.dim(d.rhs_contract[i]);
  CHECK_AT(
      loc, fits,
      "{}: {} x {} with batch axes {} x {} and contracted axes {} x {}: dtypes or sizes differ",
      kDotGeneral.name, x.type().ToString(), y.type().ToString(), ListText(d.lhs_batch),
      ListText(d.rhs_batch), ListText(d.lhs_contract), ListText(d.rhs_contract));
  Dims dims;
  for (int64_t axis : d.lhs_batch) dims.push_back(x.dim(axis));
  for (int64_t axis : FreeAxes(x.rank(), d.lhs_batch, d.lhs_contract)) dims.push_back(x.dim(axis));
  for (int64_t axis : FreeAxes(y.rank(), d.rhs_batch, d.rhs_contract)) dims.push_back(y.dim(axis));
  auto attrs = std::make_shared<DotAttrs>();
  attrs->dims = std::move(d);
  attrs->options = options;
  return MakeValue(kDotGeneral, {x, y}, {options.result, Shape(dims)}, loc, attrs);
}

Value Dot(Value x, Value y, Loc loc) {
  CHECK_AT(loc, x.rank() >= 1 && y.rank() == 2 && x.dim(-1) == y.dim(0),
           "dot: {} x {}: the last axis of the first must equal the first of the second",
           x.type().ToString(), y.type().ToString());
  const DType accumulate = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return Convert(DotGeneral(x, y, {{}, {}, {x.rank() - 1}, {0}}, {.result = accumulate}, loc),
                 x.dtype(), loc);
}

}  // namespace ulmus::graph
