#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kScatterAdd = {
    .name = "stablehlo.scatter",
    .vjp =
        [](const VjpContext& c) {
          // A dropped id must not read the clamped row: its cotangent is zero.
          const Value ct = c.cotangent(), ids = c.operand(1);
          Values cts = {ct, Value(), Value()};
          if (!c.needed[2]) return cts;
          const Value above = Compare(Cmp::kGe, ids, ZerosLike(ids));
          const Value below =
              Compare(Cmp::kLt, ids, SplatLike(ids, static_cast<double>(ct.dim(0))));
          const Value rows = Take(ct, ids);
          Dims axes;
          for (int64_t d = 0; d < ids.rank(); ++d) axes.push_back(d);
          cts[2] =
              Select(BroadcastInDim(And(above, below), rows.shape(), axes), rows, ZerosLike(rows));
          return cts;
        },
    .print =
        [](Printer& p, const Node& n) {
          const TensorType scalar{n.results[0].dtype, {}};
          const std::string a = p.FreshName(), b = p.FreshName(), sum = p.FreshName(),
                            t = MlirType(scalar);
          const int64_t rank = n.operands[1].rank();
          p.Emit(n,
                 "\"stablehlo.scatter\"({}) <{{scatter_dimension_numbers = "
                 "#stablehlo.scatter<update_window_dims = [{}], "
                 "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim "
                 "= {}>, indices_are_sorted = false, "
                 "unique_indices = false}}> ({{\n      ^bb0({}: {}, {}: {}):\n        {} = "
                 "stablehlo.add {}, {} : {}\n        "
                 "stablehlo.return {} : {}\n      }}) : ({}) -> {}",
                 p.Names(n.operands), rank, rank, a, t, b, t, sum, a, b, t, sum, t,
                 p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = *in[0];
          (void)n;
          const int64_t rows = out.type.shape.dim(0), width = out.type.shape.dim(1);
          for (size_t i = 0; i < in[1]->data.size(); ++i) {
            const auto row = static_cast<int64_t>(in[1]->data[i]);
            if (row < 0 || row >= rows) continue;
            for (int64_t d = 0; d < width; ++d) {
              out.data[static_cast<size_t>(row * width + d)] +=
                  in[2]->data[i * static_cast<size_t>(width) + static_cast<size_t>(d)];
            }
          }
          return std::vector{std::move(out)};
        },
};

Value ScatterAdd(Value table, Value ids, Value updates, Loc loc) {
  Dims dims = ids.shape().dims();
  if (table.rank() == 2) dims.push_back(table.dim(1));
  CHECK_AT(loc,
           table.rank() == 2 && IsInt(ids.dtype()) &&
               updates.type() == (TensorType{table.dtype(), Shape(dims)}),
           "{}: {} with ids {} and updates {}; wants a [V,D] table, integer ids [...] and updates "
           "[...,D]",
           kScatterAdd.name, table.type().ToString(), ids.type().ToString(),
           updates.type().ToString());
  return MakeValue(kScatterAdd, {table, ids, updates}, table.type(), loc);
}

}  // namespace ulmus::graph
