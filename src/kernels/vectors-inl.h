// Vector code shared by the kernels. Included once per instruction set (see hwy/foreach_target.h),
// so the guard toggles.
//
// Sums run in an order that does not depend on the width of the machine's vectors: element i goes
// to lane i % kSumLanes, and the lanes are added in a fixed tree. With fused multiply-add (AVX2,
// AVX-512, Arm) the results have the same bits everywhere.
#if defined(ULMUS_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ULMUS_KERNELS_VECTORS_INL_H_
#undef ULMUS_KERNELS_VECTORS_INL_H_
#else
#define ULMUS_KERNELS_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"  // BF16

HWY_BEFORE_NAMESPACE();
namespace ulmus::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;

constexpr size_t kSumLanes = 32;
constexpr size_t kLanes = hn::MaxLanes(FloatTag());
constexpr size_t kSumVectors = kSumLanes / kLanes;
static_assert(kSumLanes % kLanes == 0);

// kLanes elements at any address, as f32.
HWY_INLINE Floats LoadFloats(const float* p) { return hn::LoadU(FloatTag(), p); }
HWY_INLINE Floats LoadFloats(const BF16* p) {
  const hn::Rebind<uint16_t, FloatTag> half;
  const hn::Rebind<uint32_t, FloatTag> bits;
  const auto upper = hn::LoadU(half, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(bits, upper)));
}

HWY_INLINE void StoreFloats(Floats v, float* p) { hn::StoreU(v, FloatTag(), p); }
// Rounds to nearest, ties to even; NaN stays NaN. Same bits as BF16(float).
HWY_INLINE void StoreFloats(Floats v, BF16* p) {
  const hn::Rebind<uint16_t, FloatTag> half;
  const hn::Rebind<uint32_t, FloatTag> bits;
  const auto all = hn::BitCast(bits, v);
  const auto odd = hn::And(hn::ShiftRight<16>(all), hn::Set(bits, 1u));
  const auto rounded = hn::Add(hn::Add(all, hn::Set(bits, 0x7fffu)), odd);
  const auto quiet =
      hn::Or(all, hn::Set(bits, 0x400000u));  // rounding could carry a NaN into infinity
  const auto chosen = hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(v)), quiet, rounded);
  hn::StoreU(hn::TruncateTo(half, hn::ShiftRight<16>(chosen)), half,
             reinterpret_cast<uint16_t*>(p));
}

// kSumLanes running sums.
struct LaneSums {
  Floats v[kSumVectors];

  HWY_INLINE LaneSums() {
#pragma GCC unroll 32
    for (size_t k = 0; k < kSumVectors; ++k) v[k] = hn::Zero(FloatTag());
  }
  float Total() const {
    HWY_ALIGN float lane[kSumLanes];
    for (size_t k = 0; k < kSumVectors; ++k) hn::Store(v[k], FloatTag(), lane + k * kLanes);
    for (size_t half = kSumLanes / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    return lane[0];
  }
};

}  // namespace ulmus::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
