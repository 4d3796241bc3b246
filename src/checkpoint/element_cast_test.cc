#include "checkpoint/element_cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace ulmus::checkpoint {
namespace {

template <class To, class From>
To CastOne(From value, int64_t* overflows = nullptr) {
  To result{};
  const int64_t count =
      CastElements(kDTypeOf<From>, kDTypeOf<To>, std::as_bytes(std::span(&value, 1)),
                   std::as_writable_bytes(std::span(&result, 1)));
  if (overflows != nullptr) *overflows = count;
  return result;
}

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(CastElements, BF16RoundsToNearestEven) {
  const struct {
    uint32_t in;
    uint16_t out;
  } cases[] = {
      {0x3f800000, 0x3f80},                        // exact
      {0x3f808000, 0x3f80},                        // tie to even, down
      {0x3f818000, 0x3f82},                        // tie to even, up
      {0x3f808001, 0x3f81},                        // above the tie
      {0x3f807fff, 0x3f80},                        // below
      {0xbf818000, 0xbf82},                        // sign
      {0x00008000, 0x0000},                        // subnormal tie
      {0x00018000, 0x0002}, {0x3fffffff, 0x4000},  // carries into the exponent
      {0x80000000, 0x8000}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
  };
  for (const auto& c : cases)
    EXPECT_EQ(CastOne<BF16>(std::bit_cast<float>(c.in)).bits, c.out) << std::hex << c.in;
  EXPECT_TRUE(std::isnan(static_cast<float>(CastOne<BF16>(std::bit_cast<float>(0x7f800001u)))));
}

TEST(CastElements, F16RoundsToNearestEven) {
  const struct {
    float in;
    uint16_t out;
  } cases[] = {
      {1.0f, 0x3c00},
      {1.0f + 0x1p-11f, 0x3c00},             // tie to even, down
      {1.0f + 3 * 0x1p-11f, 0x3c02},         // tie to even, up
      {1.0f + 0x1p-11f + 0x1p-20f, 0x3c01},  // above the tie
      {65504.0f, 0x7bff},
      {65519.996f, 0x7bff},  // below the tie with 65536
      {0x1p-24f, 0x0001},    // smallest subnormal
      {0x1p-25f, 0x0000},    // tie to even
      {3 * 0x1p-25f, 0x0002},
      {-0.0f, 0x8000},
      {kInf, 0x7c00},
  };
  for (const auto& c : cases) EXPECT_EQ(CastOne<F16>(c.in).bits, c.out) << c.in;
}

TEST(CastElements, DoubleIsRoundedOnceNotTwice) {
  // Through float 1 + 2^-8 + 2^-40 would lose its last bit, become a tie and round down.
  EXPECT_EQ(CastOne<BF16>(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3f81);
  EXPECT_EQ(CastOne<BF16>(1.0 + 0x1p-8 - 0x1p-40).bits, 0x3f80);
  EXPECT_EQ(CastOne<BF16>(1.0 + 0x1p-8).bits, 0x3f80);
  EXPECT_EQ(CastOne<BF16>(-1.0 - 3 * 0x1p-8 + 0x1p-40).bits, 0xbf81);
  EXPECT_EQ(CastOne<F16>(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3c01);
  EXPECT_EQ(CastOne<F16>(0x1p-25 + 0x1p-70).bits, 0x0001);
  EXPECT_EQ(CastOne<BF16>(1e-60).bits, 0x0000);
  EXPECT_EQ(CastOne<float>(1.0 + 0x1p-24), 1.0f);
}

TEST(CastElements, WideningAndBackIsExact) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      const auto narrow = static_cast<uint16_t>(bits);
      for (DType wide : {DType::kF32, DType::kF64}) {
        std::byte wider[8];
        uint16_t back = 0;
        const auto size = static_cast<size_t>(SizeBytes(wide));
        ASSERT_EQ(CastElements(dtype, wide, std::as_bytes(std::span(&narrow, 1)),
                               std::span(wider).first(size)),
                  0);
        ASSERT_EQ(CastElements(wide, dtype, std::span(wider).first(size),
                               std::as_writable_bytes(std::span(&back, 1))),
                  0);
        const uint16_t exponent = dtype == DType::kBF16 ? 0x7f80 : 0x7c00;
        const bool is_nan = (narrow & exponent) == exponent && (narrow & ~(exponent | 0x8000)) != 0;
        if (!is_nan) {
          ASSERT_EQ(back, narrow) << Name(dtype) << " " << Name(wide);
        }
      }
    }
  }
}

TEST(CastElements, CountsFiniteValuesThatBecomeInfinite) {
  int64_t overflows = -1;
  EXPECT_EQ(CastOne<F16>(65520.0f, &overflows).bits, 0x7c00);
  EXPECT_EQ(overflows, 1);
  CastOne<F16>(kInf, &overflows);
  EXPECT_EQ(overflows, 0);
  CastOne<F16>(65504.0f, &overflows);
  EXPECT_EQ(overflows, 0);
  CastOne<F16>(BF16(1e30f), &overflows);
  EXPECT_EQ(overflows, 1);
  CastOne<BF16>(std::numeric_limits<float>::max(), &overflows);
  EXPECT_EQ(overflows, 1);
  CastOne<float>(1e300, &overflows);
  EXPECT_EQ(overflows, 1);
}

TEST(CastElements, ManyUnalignedElementsEqualOneByOne) {
  std::vector<std::byte> in(1 + 1000 * 4), out(1 + 1000 * 2);
  for (size_t i = 0; i < 1000; ++i) {
    const float value =
        std::ldexp(static_cast<float>(i * 7919 % 1009), static_cast<int>(i % 60) - 30);
    std::memcpy(in.data() + 1 + 4 * i, &value, 4);
  }
  CastElements(DType::kF32, DType::kBF16, std::span(in).subspan(1), std::span(out).subspan(1));
  for (size_t i = 0; i < 1000; ++i) {
    float value;
    uint16_t bits;
    std::memcpy(&value, in.data() + 1 + 4 * i, 4);
    std::memcpy(&bits, out.data() + 1 + 2 * i, 2);
    ASSERT_EQ(bits, BF16(value).bits) << i;
  }
}

TEST(CastElements, IntegersAreNeverConverted) {
  EXPECT_FALSE(CanCast(DType::kI64, DType::kF32));
  EXPECT_FALSE(CanCast(DType::kF32, DType::kI32));
  EXPECT_FALSE(CanCast(DType::kBool, DType::kU8));
  EXPECT_TRUE(CanCast(DType::kI64, DType::kI64));
  EXPECT_TRUE(CanCast(DType::kF64, DType::kBF16));
}

}  // namespace
}  // namespace ulmus::checkpoint
