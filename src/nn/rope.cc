#include "nn/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "graph/ops.h"

namespace ulmus::nn {

using graph::Value;

double Yarn::AttentionFactor() const {
  return attention_factor > 0 ? attention_factor : 0.1 * std::log(factor) + 1;
}

YarnRange ComputeYarnRange(const Yarn& yarn, double theta, int64_t head_dim) {
  // The frequency that turns `turns` times within the original context.
  const auto dim = [&](double turns) {
    const double context = static_cast<double>(yarn.original_context);
    return static_cast<double>(head_dim) * std::log(context / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  const double last =
      static_cast<double>(yarn.clamp == YarnClamp::kHalf ? head_dim / 2 - 1 : head_dim - 1);
  YarnRange range{.low = std::max(std::floor(dim(yarn.beta_fast)), 0.0),
                  .high = std::min(std::ceil(dim(yarn.beta_slow)), last)};
  if (yarn.clamp == YarnClamp::kHalf) range.high = std::max(range.high, range.low + 1e-3);
  if (range.high == range.low) range.high += 1e-3;
  return range;
}

RopeFrequencies ComputeRopeFrequencies(double theta, int64_t head_dim,
                                       const std::optional<Yarn>& yarn) {
  CHECK(head_dim > 0 && head_dim % 2 == 0, "rope: head width {} is not even", head_dim);
  RopeFrequencies result{
      .inverse = {}, .scale = yarn ? yarn->AttentionFactor() : 1, .yarn = yarn.has_value()};
  const YarnRange range = yarn ? ComputeYarnRange(*yarn, theta, head_dim) : YarnRange{};
  for (int64_t j = 0; j < head_dim / 2; ++j) {
    double inverse = std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim));
    if (yarn) {
      const double ramp =
          std::clamp((static_cast<double>(j) - range.low) / (range.high - range.low), 0.0, 1.0);
      inverse = inverse / yarn->factor * ramp + inverse * (1 - ramp);
    }
    result.inverse.push_back(static_cast<float>(inverse));
  }
  return result;
}

RopeTable MakeRopeTable(Value positions, const RopeFrequencies& frequencies, Loc loc) {
  CHECK_AT(loc, IsInt(positions.dtype()), "rope: positions are {}, expected integers",
           positions.type().ToString());
  const auto half = static_cast<int64_t>(frequencies.inverse.size());
  Dims dims = positions.shape().dims(), leading;
  for (int64_t axis = 0; axis < positions.rank(); ++axis) leading.push_back(axis);
  dims.push_back(half);
  const Shape shape(dims);
  const Value inverse = Constant(
      positions.graph(), HostTensor(Shape{half}, std::span<const float>(frequencies.inverse)), loc);
  const Value angle = Mul(BroadcastInDim(Convert(positions, DType::kF32, loc), shape, leading, loc),
                          BroadcastInDim(inverse, shape, {positions.rank()}, loc), loc);
  const auto scaled = [&](Value x) {
    return frequencies.scale == 1 ? x : Mul(x, SplatLike(x, frequencies.scale, loc), loc);
  };
  return {.cos = scaled(Cos(angle, loc)), .sin = scaled(Sin(angle, loc)), .yarn = frequencies.yarn};
}

Value ApplyRope(Value x, const RopeTable& table, RotationPrecision precision, Loc loc) {
  const int64_t half = x.dim(-1) / 2;
  CHECK_AT(loc, x.rank() == 4 && x.dim(-1) % 2 == 0,
           "rope: x is {}, expected [B,T,N,H] with H even", x.type().ToString());
  const Shape want{x.dim(0), x.dim(1), half}, shared{1, x.dim(1), half};
  CHECK_AT(loc, table.cos.shape() == want || table.cos.shape() == shared,
           "rope: the table is {}, expected f32{} or f32{} for x {}", table.cos.type().ToString(),
           want.ToString(), shared.ToString(), x.type().ToString());
  const DType dtype =
      precision == RotationPrecision::kActivation && !table.yarn ? x.dtype() : DType::kF32;
  Dims starts(4, 0), limits = x.shape().dims();
  limits[3] = half;
  const Value wide = Convert(x, dtype, loc), a = Slice(wide, starts, limits, {}, loc);
  starts[3] = half;
  limits[3] = 2 * half;
  const Value b = Slice(wide, starts, limits, {}, loc);
  const auto along_heads = [&](Value t) {
    return BroadcastInDim(Convert(t, dtype, loc), a.shape(), {0, 1, 3}, loc);
  };
  const Value cos = along_heads(table.cos), sin = along_heads(table.sin);
  const Value rotated = graph::Concatenate(
      {Sub(Mul(a, cos, loc), Mul(b, sin, loc), loc), Add(Mul(b, cos, loc), Mul(a, sin, loc), loc)},
      3, loc);
  return Convert(rotated, x.dtype(), loc);
}

}  // namespace ulmus::nn
