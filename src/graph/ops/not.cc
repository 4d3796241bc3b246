#include "graph/ops/op.h"

#include <cmath>

namespace ulmus::graph {

namespace {

OpDef Define() {
  OpDef op = UnaryOp("stablehlo.not", nullptr, nullptr);
  op.evaluate = [](const Node& n, std::span<const RefTensor* const> in) {
    RefTensor out = RefTensor::Zeros(n.results[0]);
    const DType dtype = out.type.dtype;
    for (size_t i = 0; i < out.data.size(); ++i) {
      const double x = in[0]->data[i];
      if (dtype == DType::kBool) {
        out.data[i] = x == 0;
      } else {  // ~x = -x - 1, modulo 2^bits for unsigned types
        out.data[i] = IsSignedInt(dtype)
                          ? -x - 1
                          : std::ldexp(1.0, static_cast<int>(SizeBytes(dtype) * 8)) - 1 - x;
      }
    }
    return std::vector{std::move(out)};
  };
  return op;
}

}  // namespace

const OpDef kNot = Define();

Value Not(Value x, Loc loc) {
  CHECK_AT(loc, !IsFloat(x.dtype()), "{} of {}: wants bool or integers", kNot.name,
           x.type().ToString());
  return MakeValue(kNot, {x}, x.type(), loc);
}

}  // namespace ulmus::graph
