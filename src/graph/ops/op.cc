#include "graph/ops/op.h"

#include <fmt/ranges.h>

namespace ulmus::graph {

Value MakeValue(const OpDef& op, Values operands, TensorType result, const Loc& loc,
                std::shared_ptr<const Attrs> attrs) {
  Graph& graph = operands[0].graph();
  return graph.AddNode(op, std::move(operands), {std::move(result)}, std::move(attrs), loc)
      .result();
}

Values MakeValues(const OpDef& op, Values operands, std::vector<TensorType> results, const Loc& loc,
                  std::shared_ptr<const Attrs> attrs) {
  Graph& graph = operands[0].graph();
  return graph.AddNode(op, std::move(operands), std::move(results), std::move(attrs), loc)
      .AllResults();
}

OpDef UnaryOp(const char* mlir_name, std::function<Value(Value, Value, Value)> vjp,
              std::function<double(double)> f) {
  const bool chlo = std::string_view(mlir_name).starts_with("chlo.");
  OpDef op;
  op.name = mlir_name;
  if (vjp) {
    op.vjp = [vjp](const VjpContext& c) {
      return Values{vjp(c.operand(0), c.result(), c.cotangent())};
    };
  }
  op.print = [mlir_name, chlo](Printer& p, const Node& n) {
    const std::string type = MlirType(n.results[0]);
    p.Emit(n, "{} {} : {}", mlir_name, p.Name(n.operands[0]), chlo ? type + " -> " + type : type);
  };
  op.evaluate = [f](const Node& n, std::span<const RefTensor* const> in) {
    RefTensor out = RefTensor::Zeros(n.results[0]);
    for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = f(in[0]->data[i]);
    return std::vector{std::move(out)};
  };
  return op;
}

Value MakeUnary(const OpDef& op, Value x, const Loc& loc, bool ints) {
  CHECK_AT(loc, IsFloat(x.dtype()) || (ints && IsInt(x.dtype())),
           "{} of {}: the element type is not supported", op.name, x.type().ToString());
  return MakeValue(op, {x}, x.type(), loc);
}

OpDef BinaryOp(const char* mlir_name,
               std::function<std::pair<Value, Value>(Value, Value, Value, Value)> vjp,
               std::function<double(double, double)> f) {
  OpDef op;
  op.name = mlir_name;
  if (vjp) {
    op.vjp = [vjp](const VjpContext& c) {
      const auto [dx, dy] = vjp(c.operand(0), c.operand(1), c.result(), c.cotangent());
      return Values{dx, dy};
    };
  }
  op.print = [mlir_name](Printer& p, const Node& n) {
    p.Emit(n, "{} {} : {}", mlir_name, p.Names(n.operands), MlirType(n.results[0]));
  };
  op.evaluate = [f](const Node& n, std::span<const RefTensor* const> in) {
    RefTensor out = RefTensor::Zeros(n.results[0]);
    for (size_t i = 0; i < out.data.size(); ++i) out.data[i] = f(in[0]->data[i], in[1]->data[i]);
    return std::vector{std::move(out)};
  };
  return op;
}

Value MakeBinary(const OpDef& op, Value x, Value y, const Loc& loc) {
  CHECK_AT(loc, x.type() == y.type(),
           "{}: operand types differ: {} and {}; broadcast or convert one of them first", op.name,
           x.type().ToString(), y.type().ToString());
  return MakeValue(op, {x, y}, x.type(), loc);
}

int64_t NormalizeAxis(const OpDef& op, int64_t axis, int64_t rank, const Loc& loc) {
  const int64_t index = axis < 0 ? axis + rank : axis;
  CHECK_AT(loc, index >= 0 && index < rank, "{}: axis {} of a tensor of rank {}", op.name, axis,
           rank);
  return index;
}

std::string ListText(const Dims& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

void ForEachIndex(const Shape& shape, const std::function<void(const Dims&, int64_t)>& f) {
  Dims index(shape.dims().size(), 0);
  const int64_t count = shape.num_elements();
  for (int64_t flat = 0; flat < count; ++flat) {
    f(index, flat);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < shape.dims()[d]) break;
      index[d] = 0;
    }
  }
}

int64_t FlatIndex(const Shape& shape, const Dims& index) {
  int64_t flat = 0;
  for (size_t d = 0; d < index.size(); ++d) flat = flat * shape.dims()[d] + index[d];
  return flat;
}

}  // namespace ulmus::graph
