#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ulmus {
namespace {

TEST(BF16, RoundsToNearestEven) {
  EXPECT_EQ(BF16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BF16(1.00390625f).bits, 0x3f80);  // half way, even below
  EXPECT_EQ(BF16(1.01171875f).bits, 0x3f82);  // half way, even above
  EXPECT_EQ(BF16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(static_cast<float>(BF16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(F16, EveryBitPatternSurvivesFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    F16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(half);
    if (std::isnan(value)) continue;
    EXPECT_EQ(F16(value).bits, half.bits) << bits;
  }
}

TEST(F16, RoundsTiesToEvenAndOverflowsToInfinity) {
  EXPECT_EQ(F16(1.00048828125f).bits, 0x3c00);  // 1 + 2^-11: half way, even below
  EXPECT_EQ(F16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(F16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(F16(std::ldexp(1.0f, -25)).bits, 0);  // half of the smallest subnormal, ties to even
}

TEST(DType, NamesRoundTripAndUnknownNamesListTheKnown) {
  for (DType dtype : kAllDTypes) EXPECT_EQ(*ParseDType(Name(dtype)), dtype);
  EXPECT_NE(ParseDType("float32").error().message().find("bf16"), std::string::npos);
}

}  // namespace
}  // namespace ulmus
