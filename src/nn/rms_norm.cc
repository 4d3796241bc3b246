#include "nn/rms_norm.h"

#include <algorithm>

#include "graph/functions.h"
#include "graph/ops.h"

namespace ulmus::nn {
namespace {

using namespace graph;  // NOLINT(google-build-using-namespace): the language this file is written
                        // in

float EpsOf(const KernelAttrs& attrs) { return std::get<float>(attrs.at("eps")); }

// r, one value per row, as wide as x.
Value AlongWidth(Value r, Value x) {
  Dims axes;
  for (int64_t axis = 0; axis + 1 < x.rank(); ++axis) axes.push_back(axis);
  return BroadcastInDim(r, x.shape(), axes);
}

// 1 / sqrt(mean_d(x^2) + eps), one per row. x in f32.
Value InverseRms(Value x, float eps) {
  return Rsqrt(Mean(Square(x), {-1}) + static_cast<double>(eps));
}

Values Forward(const KernelAttrs& attrs, Values inputs) {
  const Value x = Convert(inputs[0], DType::kF32), scale = inputs[1];
  const Value n = x * AlongWidth(InverseRms(x, EpsOf(attrs)), x);
  return {Convert(n * BroadcastTo(scale, x.shape()), inputs[0].dtype())};
}

// With n = x / rms(x) and g = ct * scale: dx = (g - n * mean_d(g * n)) / rms(x), dscale = sum over
// rows of ct * n.
Values Backward(const KernelAttrs& attrs, Values inputs) {
  const Value x = Convert(inputs[0], DType::kF32), scale = inputs[1],
              ct = Convert(inputs[2], DType::kF32);
  const Value r = AlongWidth(InverseRms(x, EpsOf(attrs)), x);
  const Value n = x * r, g = ct * BroadcastTo(scale, x.shape());
  const Value dx = r * (g - n * AlongWidth(Mean(g * n, {-1}), x));
  Dims rows;
  for (int64_t axis = 0; axis + 1 < x.rank(); ++axis) rows.push_back(axis);
  return {Convert(dx, inputs[0].dtype()), ReduceSum(ct * n, rows)};
}

// Forward and backward belong together: both have the kernel, or neither.
struct Kernels {
  KernelDef forward, backward;
};

void SetGradient(Kernels& kernels) {
  kernels.forward.vjp = [&kernels](const KernelAttrs& attrs, const VjpContext& c) {
    return KernelCall(kernels.backward, attrs, {c.operand(0), c.operand(1), c.cotangent()},
                      c.node.loc);
  };
}

// Custom calls are registered under these names by kernels/table.cc.
const Kernels& WithTargets() {
  static const Kernels& kernels = [&]() -> Kernels& {
    auto& k = *new Kernels;
    k.forward = {"rms_norm", Forward, nullptr, {{"cpu", "ulmus_rms_norm"}}};
    k.backward = {"rms_norm_backward", Backward, nullptr, {{"cpu", "ulmus_rms_norm_backward"}}};
    SetGradient(k);
    return k;
  }();
  return kernels;
}

const Kernels& PortableOnly() {
  static const Kernels& kernels = [&]() -> Kernels& {
    auto& k = *new Kernels(WithTargets());
    k.forward.targets.clear();
    k.backward.targets.clear();
    SetGradient(k);
    return k;
  }();
  return kernels;
}

// The scale is stretched in f32 and rounded then, so that its gradient is summed over the rows in
// f32.
Value RoundedTwice(Value x, Value scale, float eps) {
  const Value wide = Convert(x, DType::kF32);
  const Value n = wide * AlongWidth(InverseRms(wide, eps), wide);
  return Convert(n, x.dtype()) * Convert(BroadcastTo(scale, x.shape()), x.dtype());
}

// On each device's own rows. The gradient of scale, which every device has whole, is summed over
// the devices by Manual.
Value OnOwnRows(Value x, Value scale, const KernelAttrs& attrs, const Sharding& sharding,
                const Loc& loc) {
  CHECK_AT(loc, static_cast<int64_t>(sharding.dims.size()) == x.rank(),
           "rms_norm: x is {}, its sharding {}", x.type().ToString(), sharding.ToString());
  CHECK_AT(loc, sharding.dims.back().empty(),
           "rms_norm: sharding {} cuts the width, over which the mean is taken; leave the last "
           "axis whole",
           sharding.ToString());
  ManualSpec spec{.in = {sharding, Sharding::Replicated(1)}, .out = {sharding}, .axes = {}};
  for (const auto& axes : sharding.dims)
    spec.axes.insert(spec.axes.end(), axes.begin(), axes.end());
  const auto body = [&](Values blocks) {
    return KernelCall(WithTargets().forward, attrs, std::move(blocks), loc);
  };
  if (spec.axes.empty())
    return body({x, scale})[0];  // every device holds all rows and computes them
  return Manual({x, scale}, std::move(spec), body, loc)[0];
}

}  // namespace

Value RmsNorm(Value x, Value scale, float eps, RmsNormOptions options, Loc loc) {
  CHECK_AT(loc, (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) && x.rank() > 0,
           "rms_norm: x is {}, expected f32[...,D] or bf16[...,D]", x.type().ToString());
  const TensorType scale_type{DType::kF32, {x.dim(-1)}};
  CHECK_AT(loc, scale.type() == scale_type, "rms_norm: scale is {}, expected {} for x {}",
           scale.type().ToString(), scale_type.ToString(), x.type().ToString());
  Graph& graph = x.graph();
  CHECK_AT(loc, !options.sharding || ManualAxes(graph).empty(),
           "rms_norm: a sharding inside Manual, where x is one device's block already");
  if (options.rounding == NormRounding::kTwice) return RoundedTwice(x, scale, eps);
  const KernelAttrs attrs{{"eps", eps}};
  if (OnOneDevice(graph)) return KernelCall(WithTargets().forward, attrs, {x, scale}, loc)[0];
  if (options.sharding) return OnOwnRows(x, scale, attrs, *options.sharding, loc);
  return KernelCall(PortableOnly().forward, attrs, {x, scale}, loc)[0];
}

}  // namespace ulmus::nn
