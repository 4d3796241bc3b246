#include "kernels/rms_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm.cc"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ulmus::kernels::HWY_NAMESPACE {
namespace {

// What is left of a row after whole groups of kSumLanes, with zeros behind it: zeros change no sum.
template <class T>
struct Rest {
  T values[kSumLanes] = {};
  Rest(const T* p, size_t count) { std::memcpy(values, p, count * sizeof(T)); }
};

// In the functions below `count` is a multiple of kSumLanes.

template <class T>
HWY_INLINE void AddSquares(const T* x, size_t count, LaneSums& squares) {
  for (size_t i = 0; i < count; i += kSumLanes) {
#pragma GCC unroll 32
    for (size_t k = 0; k < kSumVectors; ++k) {
      const Floats v = LoadFloats(x + i + k * kLanes);
      squares.v[k] = hn::MulAdd(v, v, squares.v[k]);
    }
  }
}

template <class T>
HWY_INLINE void Normalize(const T* x, const float* scale, float inverse_rms, size_t count, T* y) {
  const Floats r = hn::Set(FloatTag(), inverse_rms);
  for (size_t i = 0; i < count; i += kLanes) {
    StoreFloats(hn::Mul(hn::Mul(LoadFloats(x + i), r), LoadFloats(scale + i)), y + i);
  }
}

template <class T>
void ForwardRow(const T* x, const float* scale, size_t width, float eps, T* y) {
  const size_t whole = width / kSumLanes * kSumLanes, rest = width - whole;
  const Rest<T> x_rest(x + whole, rest);
  LaneSums squares;
  AddSquares(x, whole, squares);
  AddSquares(x_rest.values, rest > 0 ? kSumLanes : 0, squares);
  const float inverse_rms = 1.0f / std::sqrt(squares.Total() / static_cast<float>(width) + eps);
  Normalize(x, scale, inverse_rms, whole, y);
  if (rest == 0) return;
  const Rest<float> scale_rest(scale + whole, rest);
  T y_rest[kSumLanes];
  Normalize(x_rest.values, scale_rest.values, inverse_rms, kSumLanes, y_rest);
  std::memcpy(y + whole, y_rest, rest * sizeof(T));
}

// Sums of x^2 and of ct * scale * x.
template <class T>
HWY_INLINE void AddProducts(const T* x, const float* scale, const T* ct, size_t count,
                            LaneSums& squares, LaneSums& products) {
  for (size_t i = 0; i < count; i += kSumLanes) {
#pragma GCC unroll 32
    for (size_t k = 0; k < kSumVectors; ++k) {
      const size_t at = i + k * kLanes;
      const Floats v = LoadFloats(x + at);
      squares.v[k] = hn::MulAdd(v, v, squares.v[k]);
      products.v[k] =
          hn::MulAdd(hn::Mul(LoadFloats(ct + at), LoadFloats(scale + at)), v, products.v[k]);
    }
  }
}

template <class T>
HWY_INLINE void Gradients(const T* x, const float* scale, const T* ct, float inverse_rms,
                          float mean_gn, size_t count, T* dx, float* dscale) {
  const Floats r = hn::Set(FloatTag(), inverse_rms), mean = hn::Set(FloatTag(), mean_gn);
  for (size_t i = 0; i < count; i += kLanes) {
    const Floats n = hn::Mul(LoadFloats(x + i), r), c = LoadFloats(ct + i);
    const Floats g = hn::Mul(c, LoadFloats(scale + i));
    StoreFloats(hn::MulAdd(c, n, LoadFloats(dscale + i)), dscale + i);
    StoreFloats(hn::Mul(r, hn::NegMulAdd(n, mean, g)), dx + i);
  }
}

// Adds the row's share to dscale.
template <class T>
void BackwardRow(const T* x, const float* scale, const T* ct, size_t width, float eps, T* dx,
                 float* dscale) {
  const size_t whole = width / kSumLanes * kSumLanes, rest = width - whole;
  const Rest<T> x_rest(x + whole, rest), ct_rest(ct + whole, rest);
  const Rest<float> scale_rest(scale + whole, rest);
  LaneSums squares, products;
  AddProducts(x, scale, ct, whole, squares, products);
  AddProducts(x_rest.values, scale_rest.values, ct_rest.values, rest > 0 ? kSumLanes : 0, squares,
              products);
  const float inverse_width = 1.0f / static_cast<float>(width);
  const float inverse_rms = 1.0f / std::sqrt(squares.Total() / static_cast<float>(width) + eps);
  const float mean_gn = products.Total() * inverse_rms * inverse_width;
  Gradients(x, scale, ct, inverse_rms, mean_gn, whole, dx, dscale);
  if (rest == 0) return;
  Rest<float> dscale_rest(dscale + whole, rest);
  T dx_rest[kSumLanes];
  Gradients(x_rest.values, scale_rest.values, ct_rest.values, inverse_rms, mean_gn, kSumLanes,
            dx_rest, dscale_rest.values);
  std::memcpy(dx + whole, dx_rest, rest * sizeof(T));
  std::memcpy(dscale + whole, dscale_rest.values, rest * sizeof(float));
}

template <class T>
void ForwardRows(const T* x, const float* scale, size_t rows, size_t width, float eps, T* y) {
  for (size_t r = 0; r < rows; ++r) ForwardRow(x + r * width, scale, width, eps, y + r * width);
}

template <class T>
void BackwardRows(const T* x, const float* scale, const T* ct, size_t rows, size_t width, float eps,
                  T* dx, float* dscale) {
  for (size_t r = 0; r < rows; ++r)
    BackwardRow(x + r * width, scale, ct + r * width, width, eps, dx + r * width, dscale);
}

// Dispatch wants plain functions.
void ForwardRowsF32(const float* x, const float* scale, size_t rows, size_t width, float eps,
                    float* y) {
  ForwardRows(x, scale, rows, width, eps, y);
}
void ForwardRowsBF16(const BF16* x, const float* scale, size_t rows, size_t width, float eps,
                     BF16* y) {
  ForwardRows(x, scale, rows, width, eps, y);
}
void BackwardRowsF32(const float* x, const float* scale, const float* ct, size_t rows, size_t width,
                     float eps, float* dx, float* dscale) {
  BackwardRows(x, scale, ct, rows, width, eps, dx, dscale);
}
void BackwardRowsBF16(const BF16* x, const float* scale, const BF16* ct, size_t rows, size_t width,
                      float eps, BF16* dx, float* dscale) {
  BackwardRows(x, scale, ct, rows, width, eps, dx, dscale);
}

}  // namespace
}  // namespace ulmus::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ulmus::kernels {
namespace {

HWY_EXPORT(ForwardRowsF32);
HWY_EXPORT(ForwardRowsBF16);
HWY_EXPORT(BackwardRowsF32);
HWY_EXPORT(BackwardRowsBF16);

constexpr size_t kBlockElements =
    16384;  // a few microseconds of work: handing it to a thread costs about one
constexpr size_t kMaxPartialSums =
    64;  // rows of partial dscale: more would cost more memory traffic than they win in balance
constexpr size_t kSumColumns = 1024;

// Rows per block; depends on the shape alone, never on the number of threads.
size_t BlockRows(size_t width) { return std::max<size_t>(1, kBlockElements / width); }

size_t NumBlocks(size_t rows, size_t block_rows) { return (rows + block_rows - 1) / block_rows; }

// Calls run(first_row, num_rows, block_index) for each block.
template <class Run>
void ForEachBlock(Workers& workers, size_t rows, size_t block_rows, const Run& run) {
  ParallelFor(workers, static_cast<int64_t>(NumBlocks(rows, block_rows)), [&](int64_t block) {
    const size_t first = static_cast<size_t>(block) * block_rows;
    run(first, std::min(block_rows, rows - first), static_cast<size_t>(block));
  });
}

// sums[d] = partial[0,d] + partial[1,d] + ..., in double: up to 64 terms, rounded once.
void SumPartials(Workers& workers, const std::vector<float>& partial, std::span<float> sums) {
  const size_t width = sums.size();
  ForEachBlock(workers, width, kSumColumns, [&](size_t first, size_t count, size_t) {
    double total[kSumColumns] = {};
    for (size_t row = first; row < partial.size(); row += width) {
      for (size_t d = 0; d < count; ++d) total[d] += static_cast<double>(partial[row + d]);
    }
    for (size_t d = 0; d < count; ++d) sums[first + d] = static_cast<float>(total[d]);
  });
}

template <class T, class RowsFn>
void Forward(Workers& workers, std::span<const T> x, std::span<const float> scale, float eps,
             std::span<T> y, RowsFn forward_rows) {
  const size_t width = scale.size();
  if (x.empty()) return;
  CHECK(width > 0 && x.size() % width == 0 && y.size() == x.size(), "x {}, y {}, scale {} elements",
        x.size(), y.size(), width);
  ForEachBlock(workers, x.size() / width, BlockRows(width), [&](size_t first, size_t rows, size_t) {
    forward_rows(&x[first * width], scale.data(), rows, width, eps, &y[first * width]);
  });
}

template <class T, class RowsFn>
void Backward(Workers& workers, std::span<const T> x, std::span<const float> scale,
              std::span<const T> ct, float eps, std::span<T> dx, std::span<float> dscale,
              RowsFn backward_rows) {
  const size_t width = scale.size();
  std::fill(dscale.begin(), dscale.end(), 0.0f);
  if (x.empty()) return;
  CHECK(width > 0 && x.size() % width == 0 && ct.size() == x.size() && dx.size() == x.size() &&
            dscale.size() == width,
        "x {}, ct {}, dx {}, scale {}, dscale {} elements", x.size(), ct.size(), dx.size(), width,
        dscale.size());
  const size_t rows = x.size() / width;
  const size_t block_rows = std::max(BlockRows(width), NumBlocks(rows, kMaxPartialSums));
  std::vector<float> partial(NumBlocks(rows, block_rows) * width);
  ForEachBlock(workers, rows, block_rows, [&](size_t first, size_t count, size_t block) {
    const size_t at = first * width;
    backward_rows(&x[at], scale.data(), &ct[at], count, width, eps, &dx[at],
                  &partial[block * width]);
  });
  SumPartials(workers, partial, dscale);
}

}  // namespace

void RmsNorm(Workers& workers, std::span<const float> x, std::span<const float> scale, float eps,
             std::span<float> y) {
  Forward(workers, x, scale, eps, y, HWY_DYNAMIC_DISPATCH(ForwardRowsF32));
}
void RmsNorm(Workers& workers, std::span<const BF16> x, std::span<const float> scale, float eps,
             std::span<BF16> y) {
  Forward(workers, x, scale, eps, y, HWY_DYNAMIC_DISPATCH(ForwardRowsBF16));
}
void RmsNormBackward(Workers& workers, std::span<const float> x, std::span<const float> scale,
                     std::span<const float> ct, float eps, std::span<float> dx,
                     std::span<float> dscale) {
  Backward(workers, x, scale, ct, eps, dx, dscale, HWY_DYNAMIC_DISPATCH(BackwardRowsF32));
}
void RmsNormBackward(Workers& workers, std::span<const BF16> x, std::span<const float> scale,
                     std::span<const BF16> ct, float eps, std::span<BF16> dx,
                     std::span<float> dscale) {
  Backward(workers, x, scale, ct, eps, dx, dscale, HWY_DYNAMIC_DISPATCH(BackwardRowsBF16));
}

}  // namespace ulmus::kernels
#endif  // HWY_ONCE
