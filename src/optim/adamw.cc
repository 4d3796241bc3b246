#include "optim/adamw.h"

#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::optim {
namespace {

using namespace graph;  // NOLINT(google-build-using-namespace): the language this file is written
                        // in

// 1 - beta^t, t an f32 scalar.
Value BiasCorrection(double beta, Value t) { return 1.0 - Pow(SplatLike(t, beta), t); }

// How fast a moment forgets, and what is left to correct. Scalars.
struct Decay {
  Value rate;        // m <- m + rate (g - m)
  Value correction;  // m / correction is unbiased
};

// 1 - beta is taken in double: of f32 numbers it would carry ten roundings.
Decay DecayOf(double beta, const AdamWStep& step, AdamRule rule) {
  const Value t = step.count + 1.0;
  if (rule == AdamRule::kAdamW) return {SplatLike(t, 1 - beta), BiasCorrection(beta, t)};
  // b_t = b (1 - b^(t-1)) / (1 - b^t): 0 at the first update.
  const Value folded = beta * BiasCorrection(beta, step.count) / BiasCorrection(beta, t);
  return {1.0 - folded, SplatLike(t, 1)};
}

}  // namespace

Value StepApplies(Value loss, Value grad_norm, Value loss_limit, Value grad_norm_limit, Loc loc) {
  const auto within = [&](Value value, Value limit) {
    return And(IsFinite(value, loc), Compare(Cmp::kLe, value, limit, loc), loc);
  };
  return And(within(loss, loss_limit), within(grad_norm, grad_norm_limit), loc);
}

Value NextCount(const AdamWStep& step, bool increment, Loc loc) {
  if (!increment) return step.count;
  return Select(step.apply, Add(step.count, SplatLike(step.count, 1, loc), loc), step.count, loc);
}

AdamWTensor AdamWUpdate(const AdamWTensor& tensor, Value grad, const AdamWStep& step,
                        double weight_decay, double lr_factor, const AdamWOptions& options,
                        Loc loc) {
  const TensorType type{DType::kF32, tensor.weight.shape()};
  for (const Value value : {tensor.weight, grad})
    CHECK_AT(loc, value.type() == type, "adamw: weight and gradient are {}, expected {}",
             value.type().ToString(), type.ToString());
  for (const Value moment : {tensor.exp_avg, tensor.exp_avg_sq})
    CHECK_AT(loc, moment.shape() == type.shape, "adamw: moment is {}, weight {}",
             moment.type().ToString(), type.ToString());
  const auto spread = [&](Value scalar) { return BroadcastTo(scalar, type.shape, loc); };
  const Decay first = DecayOf(options.beta1, step, options.rule),
              second = DecayOf(options.beta2, step, options.rule);
  const Value lr = lr_factor == 1 ? step.lr : step.lr * lr_factor;
  const Value m = Convert(tensor.exp_avg, DType::kF32, loc),
              v = Convert(tensor.exp_avg_sq, DType::kF32, loc);

  const Value decayed = tensor.weight * spread(1.0 - lr * weight_decay);
  // The weight moves by the moments as they are kept, rounded: PyTorch's update in place.
  const Value exp_avg = Convert(m + spread(first.rate) * (grad - m), tensor.exp_avg.dtype(), loc),
              exp_avg_sq =
                  Convert(v * spread(1.0 - second.rate) + spread(second.rate) * Square(grad, loc),
                          tensor.exp_avg_sq.dtype(), loc);
  const Value denominator =
      Sqrt(Convert(exp_avg_sq, DType::kF32, loc), loc) / spread(Sqrt(second.correction, loc)) +
      options.eps;
  const Value weight =
      decayed - spread(lr / first.correction) * Convert(exp_avg, DType::kF32, loc) / denominator;

  // A select, not a product with 0 or 1: 0 * NaN would poison the state on a skipped step.
  const Value apply = spread(step.apply);
  return {Select(apply, weight, tensor.weight, loc), Select(apply, exp_avg, tensor.exp_avg, loc),
          Select(apply, exp_avg_sq, tensor.exp_avg_sq, loc)};
}

}  // namespace ulmus::optim
