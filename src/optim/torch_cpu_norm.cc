#include "optim/torch_cpu_norm.h"

#include <algorithm>

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::optim {

using namespace graph;  // NOLINT(google-build-using-namespace): the language this file is written
                        // in

namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kRowsPerTurn = 64;  // written out in the loop's body: fewer, longer turns

// x f32 [slices, elements] -> f32 [slices], each the sum of its squares. The rows of lanes are
// added by operations of their own, since a compiler may add the elements of one reduction in any
// order.
Value SumOfSquares(Value x, Loc loc) {
  const int64_t slices = x.dim(0), elements = x.dim(1);
  const int64_t turns =
      std::max<int64_t>(1, (elements + kLanes * kRowsPerTurn - 1) / (kLanes * kRowsPerTurn));
  // PyTorch adds what is left of a row at the very end; sizes of models leave nothing.
  const Value padded = Pad(x, 0, {0, 0}, {0, turns * kRowsPerTurn * kLanes - elements}, {}, loc);
  const Value rows =
      Transpose(Reshape(padded, {slices, turns, kRowsPerTurn, kLanes}, loc), {1, 2, 0, 3}, loc);
  const auto body = [&](Values carry, Values xs) {
    for (int64_t row = 0; row < kRowsPerTurn; ++row) {
      const Value lanes = Reshape(Slice(xs[0], {row, 0, 0}, {row + 1, slices, kLanes}, {}, loc),
                                  {slices, kLanes}, loc);
      carry[0] = Add(carry[0], Square(lanes, loc), loc);
    }
    return ScanStep{carry, {}};
  };
  const Value zeros = Splat(x.graph(), 0, {DType::kF32, {slices, kLanes}}, loc);
  const Value lanes = Scan({zeros}, {rows}, body, {}, loc).carry[0];
  Value sum;
  for (int64_t lane = 0; lane < kLanes; ++lane)
    sum =
        AddMaybe(sum, Reshape(Slice(lanes, {0, lane}, {slices, lane + 1}, {}, loc), {slices}, loc));
  return sum;
}

}  // namespace

Value TorchCpuGlobalNorm(Graph& graph, const Values& tensors, const Dims& num_slices, Loc loc) {
  CHECK_AT(loc, tensors.size() == num_slices.size(), "norm: {} tensors but {} numbers of slices",
           tensors.size(), num_slices.size());
  Value sum;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Value x = tensors[i];
    const int64_t elements = x.type().shape.num_elements();
    CHECK_AT(loc, num_slices[i] >= 1 && elements % num_slices[i] == 0,
             "norm: {} cannot be cut into {} slices", x.type().ToString(), num_slices[i]);
    const Value flat = Reshape(x, {num_slices[i], elements / num_slices[i]}, loc);
    // Of norms, not of sums of squares: the norm of each tensor is rounded once more.
    sum = AddMaybe(sum, ReduceSum(Square(Sqrt(SumOfSquares(flat, loc), loc), loc), {0}, loc));
  }
  return sum ? Sqrt(sum, loc) : Splat(graph, 0, {DType::kF32, {}}, loc);
}

}  // namespace ulmus::optim
