#include "graph/ops/op.h"

#include <algorithm>
#include <numeric>

namespace ulmus::graph {

namespace {

struct TransposeAttrs : Attrs {
  Dims permutation;
};

}  // namespace

const OpDef kTranspose = {
    .name = "stablehlo.transpose",
    .vjp =
        [](const VjpContext& c) {
          const Dims& permutation = c.node.attrs_as<TransposeAttrs>().permutation;
          Dims inverse(permutation.size());
          for (size_t i = 0; i < permutation.size(); ++i)
            inverse[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
          return Values{Transpose(c.cotangent(), inverse)};
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.transpose {}, dims = {} : ({}) -> {}", p.Name(n.operands[0]),
                 ListText(n.attrs_as<TransposeAttrs>().permutation), p.Type(n.operands[0]),
                 MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          const Dims& permutation = n.attrs_as<TransposeAttrs>().permutation;
          Dims source(permutation.size());
          ForEachIndex(out.type.shape, [&](const Dims& index, int64_t flat) {
            for (size_t d = 0; d < index.size(); ++d)
              source[static_cast<size_t>(permutation[d])] = index[d];
            out.data[static_cast<size_t>(flat)] =
                in[0]->data[static_cast<size_t>(FlatIndex(in[0]->type.shape, source))];
          });
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value Transpose(Value x, Dims permutation, Loc loc) {
  Dims sorted = permutation, identity(permutation.size()), dims;
  std::sort(sorted.begin(), sorted.end());
  std::iota(identity.begin(), identity.end(), 0);
  CHECK_AT(loc, sorted == identity && static_cast<int64_t>(permutation.size()) == x.rank(),
           "{}: {} is not a permutation of the axes of {}", kTranspose.name, ListText(permutation),
           x.shape().ToString());
  if (permutation == identity) return x;
  for (int64_t axis : permutation) dims.push_back(x.dim(axis));
  auto attrs = std::make_shared<TransposeAttrs>();
  attrs->permutation = std::move(permutation);
  return MakeValue(kTranspose, {x}, {x.dtype(), Shape(dims)}, loc, attrs);
}

}  // namespace ulmus::graph
