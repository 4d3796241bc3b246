#include "graph/ops/op.h"

#include <algorithm>
#include <numeric>

namespace ulmus::graph {

namespace {

struct TopKAttrs : Attrs {
  int64_t k = 0;
};

}  // namespace

const OpDef kTopK = {
    .name = "chlo.top_k",
    .vjp =
        [](const VjpContext& c) {
          // Each kept value sends its cotangent back to its place: one-hot rows, summed over k.
          const Value ct = c.cotangent(0), indices = c.result(1), x = c.operand(0);
          Dims wide = indices.shape().dims(), axes;
          wide.push_back(x.dim(-1));
          for (int64_t d = 0; d < indices.rank(); ++d) axes.push_back(d);
          const Value places = Iota(x.graph(), {indices.dtype(), Shape(wide)}, -1);
          const Value hit = Compare(Cmp::kEq, BroadcastInDim(indices, Shape(wide), axes), places);
          const Value spread = BroadcastInDim(ct, Shape(wide), axes);
          return Values{ReduceSum(Select(hit, spread, ZerosLike(spread)), {indices.rank() - 1})};
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "chlo.top_k({}, k = {}) : {} -> ({})", p.Name(n.operands[0]),
                 n.attrs_as<TopKAttrs>().k, p.Type(n.operands[0]), MlirTypes(n.results));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor values = RefTensor::Zeros(n.results[0]),
                    indices = RefTensor::Zeros(n.results[1]);
          const auto width = static_cast<size_t>(in[0]->type.shape.dim(-1)),
                     k = static_cast<size_t>(n.attrs_as<TopKAttrs>().k);
          std::vector<size_t> order(width);
          for (size_t row = 0; row < in[0]->data.size() / width; ++row) {
            const double* x = in[0]->data.data() + row * width;
            std::iota(order.begin(), order.end(), size_t{0});
            std::stable_sort(order.begin(), order.end(),
                             [x](size_t a, size_t b) { return x[a] > x[b]; });
            for (size_t i = 0; i < k; ++i) {
              values.data[row * k + i] = x[order[i]];
              indices.data[row * k + i] = static_cast<double>(order[i]);
            }
          }
          return std::vector{std::move(values), std::move(indices)};
        },
};

TopKResult TopK(Value x, int64_t k, Loc loc) {
  CHECK_AT(loc, x.rank() > 0 && k > 0 && k <= x.dim(-1), "{}: k = {} of {}", kTopK.name, k,
           x.type().ToString());
  auto attrs = std::make_shared<TopKAttrs>();
  attrs->k = k;
  Dims dims = x.shape().dims();
  dims.back() = k;
  const Values out =
      MakeValues(kTopK, {x}, {{x.dtype(), Shape(dims)}, {DType::kI32, Shape(dims)}}, loc, attrs);
  return {out[0], out[1]};
}

}  // namespace ulmus::graph
