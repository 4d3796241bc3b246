#include "graph/ops/op.h"

namespace ulmus::graph {

namespace {

OpDef Define() {
  OpDef op = BinaryOp("stablehlo.shift_left", nullptr, nullptr);
  op.evaluate = [](const Node& n, std::span<const RefTensor* const> in) {
    RefTensor out = RefTensor::Zeros(n.results[0]);
    const int64_t bits = SizeBytes(out.type.dtype) * 8;
    const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    for (size_t i = 0; i < out.data.size(); ++i) {
      const auto x = static_cast<uint64_t>(static_cast<int64_t>(in[0]->data[i]));
      const auto y = static_cast<uint64_t>(in[1]->data[i]);
      out.data[i] = y >= static_cast<uint64_t>(bits) ? 0.0 : static_cast<double>((x << y) & mask);
    }
    return std::vector{std::move(out)};
  };
  return op;
}

}  // namespace

const OpDef kShiftLeft = Define();

Value ShiftLeft(Value x, Value y, Loc loc) {
  CHECK_AT(loc, IsUnsignedInt(x.dtype()), "{} of {}: wants unsigned integers", kShiftLeft.name,
           x.type().ToString());
  return MakeBinary(kShiftLeft, x, y, loc);
}

}  // namespace ulmus::graph
