#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

const OpDef kIsFinite = {
    .name = "stablehlo.is_finite",
    .vjp = [](const VjpContext&) { return Values{Value()}; },
    .print =
        [](Printer& p, const Node& n) {
          p.Emit(n, "stablehlo.is_finite {} : ({}) -> {}", p.Name(n.operands[0]),
                 p.Type(n.operands[0]), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = std::isfinite(in[0]->data[i]);
          return std::vector{std::move(out)};
        },
};

Value IsFinite(Value x, Loc loc) {
  CHECK_AT(loc, IsFloat(x.dtype()), "{} of {}: wants floats", kIsFinite.name, x.type().ToString());
  return MakeValue(kIsFinite, {x}, {DType::kBool, x.shape()}, loc);
}

}  // namespace ulmus::graph
