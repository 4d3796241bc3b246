#include "graph/ops/op.h"

namespace ulmus::graph {

const OpDef kConvert = {
    .name = "stablehlo.convert",
    .vjp = [](const VjpContext& c) { return Values{Convert(c.cotangent(), c.operand(0).dtype())}; },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.convert {} : ({}) -> {}", p.Name(n.operands[0]),
                 p.Type(n.operands[0]), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          for (size_t i = 0; i < out.data.size(); ++i)
            out.data[i] = in[0]->data[i];  // rounded on the way out
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value Convert(Value x, DType dtype, Loc loc) {
  if (x.dtype() == dtype) return x;
  return MakeValue(kConvert, {x}, {dtype, x.shape()}, loc);
}

}  // namespace ulmus::graph
