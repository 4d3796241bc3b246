#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kSelect = {
    .name = "stablehlo.select",
    .vjp =
        [](const VjpContext& c) {
          const Value ct = c.cotangent(), zero = ZerosLike(ct), where = c.operand(0);
          return Values{Value(), Select(where, ct, zero), Select(where, zero, ct)};
        },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.select {} : {}, {}", p.Names(n.operands), p.Type(n.operands[0]),
                 MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          for (size_t i = 0; i < out.data.size(); ++i)
            out.data[i] = (in[0]->data[i] != 0 ? in[1] : in[2])->data[i];
          return std::vector{std::move(out)};
        },
};

Value Select(Value where, Value x, Value y, Loc loc) {
  CHECK_AT(loc, where.dtype() == DType::kBool && where.shape() == x.shape() && x.type() == y.type(),
           "{}: {} ? {} : {}; wants a bool condition of the same shape and equal branches",
           kSelect.name, where.type().ToString(), x.type().ToString(), y.type().ToString());
  return MakeValue(kSelect, {where, x, y}, x.type(), loc);
}

}  // namespace ulmus::graph
