#include "optim/clip.h"

#include "graph/autodiff.h"
#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::optim {

using namespace graph;  // NOLINT(google-build-using-namespace): the language this file is written
                        // in

Value GlobalNorm(Graph& graph, const Values& tensors, Loc loc) {
  Value sum;
  for (const Value tensor : tensors) {
    Dims axes;
    for (int64_t axis = 0; axis < tensor.rank(); ++axis) axes.push_back(axis);
    sum = AddMaybe(sum, ReduceSum(Square(Convert(tensor, DType::kF32, loc), loc), axes, loc));
  }
  return sum ? Sqrt(sum, loc) : Splat(graph, 0, {DType::kF32, {}}, loc);
}

Value ClipFactor(Value norm, double max_norm, ClipRule rule, Loc loc) {
  CHECK_AT(loc, norm.type() == TensorType(DType::kF32, {}), "clip: norm is {}, expected f32[]",
           norm.type().ToString());
  const Value one = SplatLike(norm, 1, loc), limit = SplatLike(norm, max_norm, loc);
  switch (rule) {
    case ClipRule::kOlmoCore:
      return Min(one, Div(limit, Add(norm, SplatLike(norm, 1e-6, loc), loc), loc), loc);
    case ClipRule::kMaxText:
      return Select(Compare(Cmp::kLt, norm, limit, loc), one, Div(limit, norm, loc), loc);
    case ClipRule::kOff:
      return one;
  }
  return one;
}

}  // namespace ulmus::optim
