#include "graph/ops/op.h"

#include <algorithm>

namespace ulmus::graph {

const OpDef kTake = {
    .name = "stablehlo.gather",
    .vjp =
        [](const VjpContext& c) {
          return Values{ScatterAdd(ZerosLike(c.operand(0)), c.operand(1), c.cotangent()), Value()};
        },
    .print =
        [](Printer& p, const Node& n) {
          const Value table = n.operands[0], ids = n.operands[1];
          p.Emit(n,
                 "\"stablehlo.gather\"({}) <{{dimension_numbers = #stablehlo.gather<offset_dims = "
                 "[{}], collapsed_slice_dims = [0], "
                 "start_index_map = [0], index_vector_dim = {}>, slice_sizes = array<i64: 1, {}>, "
                 "indices_are_sorted = false}}> : ({}) -> {}",
                 p.Names(n.operands), ids.rank(), ids.rank(), table.dim(1), p.Types(n.operands),
                 MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          const int64_t rows = in[0]->type.shape.dim(0), width = in[0]->type.shape.dim(1);
          for (size_t i = 0; i < in[1]->data.size(); ++i) {
            const int64_t row =
                std::clamp<int64_t>(static_cast<int64_t>(in[1]->data[i]), 0, rows - 1);
            std::copy_n(in[0]->data.begin() + row * width, width,
                        out.data.begin() + static_cast<int64_t>(i) * width);
          }
          return std::vector{std::move(out)};
        },
};

Value Take(Value table, Value ids, Loc loc) {
  CHECK_AT(loc, table.rank() == 2 && IsInt(ids.dtype()),
           "{}: table {} looked up by {}; wants a [V,D] table and integer ids", kTake.name,
           table.type().ToString(), ids.type().ToString());
  Dims dims = ids.shape().dims();
  dims.push_back(table.dim(1));
  return MakeValue(kTake, {table, ids}, {table.dtype(), Shape(dims)}, loc);
}

}  // namespace ulmus::graph
