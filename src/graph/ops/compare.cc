#include "graph/ops/op.h"

namespace ulmus::graph {

namespace {

struct CompareAttrs : Attrs {
  Cmp direction = Cmp::kEq;
};

constexpr const char* kNames[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};

bool Holds(Cmp direction, double x, double y) {
  switch (direction) {
    case Cmp::kEq:
      return x == y;
    case Cmp::kNe:
      return x != y;
    case Cmp::kGe:
      return x >= y;
    case Cmp::kGt:
      return x > y;
    case Cmp::kLe:
      return x <= y;
    case Cmp::kLt:
      return x < y;
  }
  return false;
}

}  // namespace

const OpDef kCompare = {
    .name = "stablehlo.compare",
    .vjp = [](const VjpContext&) { return Values{Value(), Value()}; },
    .print =
        [](Printer& p, const Node& n) {
          const DType dtype = n.operands[0].dtype();
          const char* kind = IsFloat(dtype) ? "FLOAT" : IsSignedInt(dtype) ? "SIGNED" : "UNSIGNED";
          p.Emit(n, "stablehlo.compare {}, {}, {} : ({}) -> {}",
                 kNames[static_cast<int>(n.attrs_as<CompareAttrs>().direction)],
                 p.Names(n.operands), kind, p.Types(n.operands), MlirType(n.results[0]));
        },
    .evaluate =
        [](const Node& n, std::span<const RefTensor* const> in) {
          RefTensor out = RefTensor::Zeros(n.results[0]);
          const Cmp direction = n.attrs_as<CompareAttrs>().direction;
          for (size_t i = 0; i < out.data.size(); ++i)
            out.data[i] = Holds(direction, in[0]->data[i], in[1]->data[i]);
          return std::vector{std::move(out)};
        },
    .cheap = true,
};

Value Compare(Cmp direction, Value x, Value y, Loc loc) {
  CHECK_AT(loc, x.type() == y.type(), "{}: operand types differ: {} and {}", kCompare.name,
           x.type().ToString(), y.type().ToString());
  auto attrs = std::make_shared<CompareAttrs>();
  attrs->direction = direction;
  return MakeValue(kCompare, {x, y}, {DType::kBool, x.shape()}, loc, attrs);
}

}  // namespace ulmus::graph
