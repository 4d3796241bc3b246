#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/check.h"

namespace ulmus {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgumentError("{} is odd", value);
  return value / 2;
}

Result<int> Quarter(int value) {
  const int half = TRY(Half(value));
  return TRY(Half(half));
}

Status CheckEven(int value) {
  TRY(Half(value));
  return Status();
}

TEST(Status, NamesItsCodeAndKeepsItUnderContext) {
  const Status status = NotFoundError("{}: no such tensor", "w");
  EXPECT_EQ(status.ToString(), "kNotFound: w: no such tensor");
  EXPECT_EQ(status.WithContext("load").ToString(), "kNotFound: load: w: no such tensor");
  EXPECT_EQ(Status().WithContext("load"), Status());
  EXPECT_EQ(Status().ToString(), "ok");
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(99)), "kUnknown(99)");
  EXPECT_EQ(StatusCodeName(static_cast<StatusCode>(-1)), "kUnknown(-1)");
  EXPECT_EQ(StatusCodeName(StatusCode::kUnauthenticated), "kUnauthenticated");
}

TEST(Result, TryReturnsTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(8).status(), Status());
  EXPECT_EQ(Quarter(6).error().message(), "3 is odd");
  EXPECT_EQ(CheckEven(4), Status());
  EXPECT_EQ(CheckEven(3).code(), StatusCode::kInvalidArgument);
}

TEST(Result, HoldsValuesThatOnlyMove) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(5); };
  const auto use = [&]() -> Result<int> {
    const std::unique_ptr<int> value = TRY(make());
    return *value;
  };
  EXPECT_EQ(*use(), 5);
}

TEST(ExitCode, TellsRecipeErrorsAndDamageFromOtherFailures) {
  EXPECT_EQ(ExitCodeFor(Status()), 0);
  EXPECT_EQ(ExitCodeFor(UnavailableError("x")), 1);
  EXPECT_EQ(ExitCodeFor(InvalidArgumentError("x")), 2);
  EXPECT_EQ(ExitCodeFor(DataLossError("x")), 3);
}

TEST(CheckDeathTest, PrintsPlaceConditionAndValues) {
  EXPECT_DEATH(CHECK(1 + 1 == 3, "sum is {}", 2),
               "status_test.cc:[0-9]+: CHECK\\(1 \\+ 1 == 3\\) failed: sum is 2");
  EXPECT_DEATH(CHECK(false), "CHECK\\(false\\) failed");
  const Loc here = Loc::current();
  EXPECT_DEATH(CHECK_AT(here, false), fmt::format("status_test.cc:{}:", here.line()));
}

}  // namespace
}  // namespace ulmus
