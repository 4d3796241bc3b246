// What the files of this folder share: making nodes, and whole definitions for elementwise ops.
#pragma once

#include <functional>
#include <utility>

#include "graph/interpret.h"  // RefTensor
#include "graph/ops.h"
#include "graph/ops/table.h"
#include "graph/print.h"
#include "graph/value.h"

namespace ulmus::graph {

// One-result node.
Value MakeValue(const OpDef& op, Values operands, TensorType result, const Loc& loc,
                std::shared_ptr<const Attrs> attrs = nullptr);
// Any number of results.
Values MakeValues(const OpDef& op, Values operands, std::vector<TensorType> results, const Loc& loc,
                  std::shared_ptr<const Attrs> attrs = nullptr);

// y[i] = f(x[i]), printed "dialect.name %x : type" (chlo ops: "... : type -> type").
// vjp(x, y, ct) gives the cotangent of x.
OpDef UnaryOp(const char* mlir_name, std::function<Value(Value x, Value y, Value ct)> vjp,
              std::function<double(double)> f);
// CHECKs that x is floating (or, with `ints`, a float or integer tensor).
Value MakeUnary(const OpDef& op, Value x, const Loc& loc, bool ints = false);

// z[i] = f(x[i], y[i]) of equal types; vjp gives both cotangents.
OpDef BinaryOp(const char* mlir_name,
               std::function<std::pair<Value, Value>(Value x, Value y, Value z, Value ct)> vjp,
               std::function<double(double, double)> f);
// CHECKs equal types, naming both shapes and the caller's line.
Value MakeBinary(const OpDef& op, Value x, Value y, const Loc& loc);

// CHECKs 0 <= axis < rank after counting negative axes from the end; returns it non-negative.
int64_t NormalizeAxis(const OpDef& op, int64_t axis, int64_t rank, const Loc& loc);

// "[1, 0]"
std::string ListText(const Dims& values);

// Calls f(multi-index, flat index) for each element of `shape` in row-major order.
void ForEachIndex(const Shape& shape,
                  const std::function<void(const Dims& index, int64_t flat)>& f);
int64_t FlatIndex(const Shape& shape, const Dims& index);

}  // namespace ulmus::graph
