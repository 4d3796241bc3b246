// Common combinations of ops. Nothing here is an op: each is written with the functions of
// graph/ops.h.
#pragma once

#include "graph/ops.h"

namespace ulmus::graph {

// x with size-1 or missing leading axes stretched to `shape`, axes aligned at the end (NumPy's
// rule).
Value BroadcastTo(Value x, Shape shape, Loc loc = Loc::current());
Value Square(Value x, Loc loc = Loc::current());
// x * logistic(x)
Value Silu(Value x, Loc loc = Loc::current());
// Mean over `axes`.
Value Mean(Value x, Dims axes, Loc loc = Loc::current());
// softmax over the last axis, in f32 at least, returned in x's dtype.
Value Softmax(Value x, Loc loc = Loc::current());
// ln sum exp over the last axis, which goes; float32 at least.
Value LogSumExp(Value x, Loc loc = Loc::current());
// x[..., ids[...]] along the last axis, by comparison instead of a gather: stays sharded along that
// axis.
Value TakeAlongLast(Value x, Value ids, Loc loc = Loc::current());
// Index (i32) of the largest element along the last axis; the first one if several are equal.
Value ArgMax(Value x, Loc loc = Loc::current());
// This device's row-major index along `axes` (the first is major), i32 scalar. 0 without axes;
// otherwise inside Manual only.
Value PlaceAlong(Graph& graph, const std::vector<std::string>& axes, Loc loc = Loc::current());

}  // namespace ulmus::graph
