#include "kernels/rms_norm.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/testing/rms_norm_reference.h"
#include "kernels/testing/thread_workers.h"

namespace ulmus::kernels {
namespace {

constexpr float kEps = 1e-6f;
constexpr double kBF16Unit = 1.0 / 256;  // relative error of one rounding to bf16

template <class T>
constexpr double kRounding = std::is_same_v<T, BF16> ? kBF16Unit : 0;
// f32 statistics: 32 lanes of width/32 terms, a square root, a division and three products; far
// below for usual data.
constexpr double kF32Error = 4e-6;

// Deterministic values in [-1.5, 1.5] with the scale of the rows spread over a factor of 16.
template <class T>
std::vector<T> Values(size_t count, size_t row_width, uint32_t seed) {
  std::vector<T> values;
  uint32_t state = seed * 2654435761u + 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float unit = static_cast<float>(state >> 8) / 16777216.0f;
    values.emplace_back((3 * unit - 1.5f) *
                        std::ldexp(1.0f, static_cast<int>(i / row_width % 5) - 2));
  }
  return values;
}

template <class T>
std::vector<double> Doubles(std::span<const T> values) {
  std::vector<double> doubles;
  for (const T v : values) doubles.push_back(static_cast<double>(static_cast<float>(v)));
  return doubles;
}

// Inputs and results of one call, `offset` elements away from an aligned address.
template <class T>
struct Call {
  size_t rows, width, offset;
  std::vector<T> x, ct, y, dx;
  std::vector<float> scale, dscale;

  Call(size_t num_rows, size_t row_width, size_t at = 0)
      : rows(num_rows),
        width(row_width),
        offset(at),
        x(Values<T>(at + rows * width, width, 1)),
        ct(Values<T>(at + rows * width, rows * width, 2)),
        y(x.size()),
        dx(x.size()),
        scale(Values<float>(at + width, width, 3)),
        dscale(scale.size()) {}

  std::span<const T> xs() const { return std::span(x).subspan(offset); }
  std::span<const T> cts() const { return std::span(ct).subspan(offset); }
  std::span<const float> scales() const { return std::span(scale).subspan(offset); }
  void Run(Workers& workers) {
    RmsNorm(workers, xs(), scales(), kEps, std::span(y).subspan(offset));
    RmsNormBackward(workers, xs(), scales(), cts(), kEps, std::span(dx).subspan(offset),
                    std::span(dscale).subspan(offset));
  }
};

// Each |got - want| <= relative * |want| + absolute; reports the worst element.
template <class T>
void ExpectClose(const std::string& what, std::span<const T> got, std::span<const double> want,
                 double relative, double absolute) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(static_cast<float>(got[i])) - want[i]) /
                         (relative * std::fabs(want[i]) + absolute);
    if (!(error <= worst)) worst = error, at = i;
  }
  EXPECT_LE(worst, 1) << what << ": element " << at << " is " << static_cast<float>(got[at])
                      << ", expected " << want[at];
}

double MaxAbs(std::span<const double> values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::fabs(v));
  return most;
}

template <class T>
void ExpectEqualsTwin(size_t rows, size_t width, size_t offset) {
  const std::string where =
      std::to_string(rows) + "x" + std::to_string(width) + " at offset " + std::to_string(offset);
  Call<T> call(rows, width, offset);
  CallerOnly caller;
  call.Run(caller);
  const std::vector<double> x = Doubles(call.xs()), scale = Doubles(call.scales()),
                            ct = Doubles(call.cts());
  ExpectClose<T>("y " + where, std::span(call.y).subspan(offset),
                 RmsNormReference(x, scale, static_cast<double>(kEps)), kRounding<T> + kF32Error,
                 1e-12);
  const RmsNormGradients want = RmsNormBackwardReference(x, scale, ct, static_cast<double>(kEps));
  for (size_t r = 0; r < rows;
       ++r) {  // per row: dx cancels, so its error scales with the row's largest gradient
    const auto want_row = std::span(want.dx).subspan(r * width, width);
    double largest = MaxAbs(want_row);
    if (width < 4)
      largest += 20;  // width 1 cancels down to eps: dx ~ 0 from terms of order |ct scale / x|
    ExpectClose<T>("dx row " + std::to_string(r) + " of " + where,
                   std::span<const T>(call.dx).subspan(offset + r * width, width), want_row,
                   kRounding<T> + kF32Error, kF32Error * largest);
  }
  const double terms = std::sqrt(static_cast<double>(rows));
  ExpectClose<float>("dscale " + where, std::span<const float>(call.dscale).subspan(offset),
                     want.dscale, kF32Error, kF32Error * terms);
}

TEST(RmsNorm, EqualsItsTwinOverAShapeGrid) {
  for (const size_t rows : {1, 2, 3, 17, 300}) {
    for (const size_t width : {1, 3, 7, 8, 31, 32, 33, 64, 65, 4096}) {
      if (rows * width > 100000) continue;
      for (const size_t offset : {0, 1, 5}) {
        ExpectEqualsTwin<float>(rows, width, offset);
        ExpectEqualsTwin<BF16>(rows, width, offset);
      }
    }
  }
  ExpectEqualsTwin<float>(70, 4096, 0);  // several blocks of rows
  ExpectEqualsTwin<BF16>(2100, 65, 1);
}

TEST(RmsNorm, EmptyInputsGiveEmptyResultsAndNoGradient) {
  Call<float> call(0, 8);
  call.dscale.assign(8, 5);
  CallerOnly caller;
  call.Run(caller);
  EXPECT_EQ(call.dscale, std::vector<float>(8));
  Call<BF16>(0, 0).Run(caller);
}

TEST(RmsNorm, MayWriteOverItsInput) {
  Call<BF16> apart(5, 100), over(5, 100);
  CallerOnly caller;
  apart.Run(caller);
  RmsNormBackward(caller, over.x, over.scale, over.ct, kEps, over.ct, over.dscale);
  EXPECT_EQ(over.ct, apart.dx);
  RmsNorm(caller, over.x, over.scale, kEps, over.x);
  EXPECT_EQ(over.x, apart.y);
}

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void ExpectSameBits(const Call<T>& a, const Call<T>& b, const std::string& what) {
  EXPECT_TRUE(SameBits(a.y, b.y)) << what;
  EXPECT_TRUE(SameBits(a.dx, b.dx)) << what;
  EXPECT_TRUE(SameBits(a.dscale, b.dscale)) << what;
}

template <class T>
void ExpectSameBitsForAnyThreads(size_t rows, size_t width) {
  Call<T> one(rows, width);
  CallerOnly caller;
  one.Run(caller);
  for (const int64_t threads : {2, 3, 8}) {
    ThreadWorkers workers(threads);
    Call<T> many(rows, width);
    many.Run(workers);
    ExpectSameBits(one, many, std::to_string(threads) + " threads, width " + std::to_string(width));
  }
}

TEST(RmsNorm, SameBitsForAnyNumberOfThreads) {
  for (const size_t width : {7, 64, 4096}) {
    ExpectSameBitsForAnyThreads<float>(400000 / width, width);
    ExpectSameBitsForAnyThreads<BF16>(400000 / width, width);
  }
}

// Runs what follows with the code of one instruction set.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST(RmsNorm, EveryInstructionSetEqualsTheTwin) {
  for (const int64_t target : {HWY_EMU128, HWY_AVX2, HWY_AVX3}) {
    if ((hwy::SupportedTargets() & target) == 0) continue;  // this machine cannot run it
    const OnlyTarget only(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const size_t width : {1, 8, 65, 1000}) {
      ExpectEqualsTwin<float>(5, width, 1);
      ExpectEqualsTwin<BF16>(5, width, 1);
    }
  }
}

template <class T>
void ExpectSameBitsOnAvx2AndAvx512() {
  for (const size_t width : {1, 31, 64, 1000, 4096}) {
    CallerOnly caller;
    Call<T> avx2(9, width), avx512(9, width);
    {
      const OnlyTarget only(HWY_AVX2);
      avx2.Run(caller);
    }
    {
      const OnlyTarget only(HWY_AVX3);
      avx512.Run(caller);
    }
    ExpectSameBits(avx2, avx512, "width " + std::to_string(width));
  }
}

TEST(RmsNorm, SameBitsOnAvx2AndAvx512) {
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) GTEST_SKIP() << "this machine has no AVX-512";
  ExpectSameBitsOnAvx2AndAvx512<float>();
  ExpectSameBitsOnAvx2AndAvx512<BF16>();
}

TEST(RmsNorm, RoundsToBF16AsTheHostTypeDoes) {
  // scale = the value to round, x = 1 in a row of width 1 with eps = 0: y = the rounded value.
  for (const uint32_t bits : {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f807fffu, 0x7f7fffffu,
                              0x00008000u, 0x80018000u, 0x7f800001u, 0xff800000u}) {
    const float value = std::bit_cast<float>(bits);
    const std::vector<BF16> x{BF16(1.0f)};
    const std::vector<float> scale{value};
    std::vector<BF16> y(1);
    CallerOnly caller;
    RmsNorm(caller, x, scale, 0.0f, y);
    EXPECT_EQ(y[0].bits, BF16(value).bits) << std::hex << bits;
  }
}

template <class T>
void ExpectRowsPoisoned(float poison) {
  Call<T> clean(3, 100), dirty(3, 100);
  dirty.x[100 + 40] = T(poison);
  CallerOnly caller;
  clean.Run(caller);
  dirty.Run(caller);
  const auto value = [&](const std::vector<T>& v, size_t r, size_t d) {
    return static_cast<float>(v[r * 100 + d]);
  };
  for (size_t d = 0; d < 100; ++d) {
    for (const size_t r : {0, 2}) {  // other rows do not notice
      EXPECT_EQ(value(dirty.y, r, d), value(clean.y, r, d));
      EXPECT_EQ(value(dirty.dx, r, d), value(clean.dx, r, d));
    }
    if (std::isnan(poison)) {
      EXPECT_TRUE(std::isnan(value(dirty.y, 1, d)) && std::isnan(value(dirty.dx, 1, d))) << d;
      EXPECT_TRUE(std::isnan(dirty.dscale[d])) << d;
    }
  }
  // An infinite element makes 1/rms zero: itself NaN, its neighbours 0, as the formula says in f32.
  EXPECT_TRUE(std::isnan(value(dirty.y, 1, 40)));
  EXPECT_TRUE(std::isnan(value(dirty.dx, 1, 40)));
  EXPECT_TRUE(std::isnan(dirty.dscale[40]));
  if (std::isinf(poison)) {
    EXPECT_EQ(value(dirty.y, 1, 41), 0);
  }
}

TEST(RmsNorm, NaNAndInfinityStayVisibleInTheirRowOnly) {
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    ExpectRowsPoisoned<float>(poison);
    ExpectRowsPoisoned<BF16>(poison);
  }
}

TEST(RmsNorm, ZeroRowsAreFinite) {
  Call<float> call(1, 40);
  std::fill(call.x.begin(), call.x.end(), 0.0f);
  CallerOnly caller;
  call.Run(caller);
  for (size_t d = 0; d < 40; ++d) {
    EXPECT_EQ(call.y[d], 0);
    EXPECT_NEAR(call.dx[d], call.ct[d] * call.scale[d] * 1000,
                1e-3 * std::fabs(call.dx[d]));  // 1 / sqrt(eps) = 1000
  }
}

TEST(RmsNormDeathTest, SizesThatDoNotFitAbort) {
  CallerOnly caller;
  std::vector<float> x(10), scale(4), y(10);
  EXPECT_DEATH(RmsNorm(caller, std::span<const float>(x), scale, kEps, std::span<float>(y)),
               "x 10, y 10, scale 4 elements");
}

}  // namespace
}  // namespace ulmus::kernels
