// What the reduction ops share.
#pragma once

#include <functional>

#include "graph/value.h"

namespace ulmus::graph {

// mlir_name is the combining op ("stablehlo.add").
struct ReduceSpec {
  const char* mlir_name;
  std::function<double(double, double)> combine;
};

OpDef ReduceOp(ReduceSpec spec, std::function<Value(const VjpContext&, const Dims& axes)> vjp);
// `neutral`: the value that `combine` ignores.
Value MakeReduce(const OpDef& op, Value x, Dims axes, double neutral, const Loc& loc);
// `reduced` (the result of reducing axes of `like`) spread back to like's shape.
Value SpreadOver(Value reduced, Value like, const Dims& axes);
// Cotangent of a maximum or minimum: shared equally by the elements that attain it.
Value ExtremumVjp(const VjpContext& c, const Dims& axes);
// Largest (smallest) value a dtype can hold; infinities for floats.
double HighestValue(DType dtype);
double LowestValue(DType dtype);

}  // namespace ulmus::graph
