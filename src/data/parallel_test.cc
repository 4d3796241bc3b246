#include "data/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace ulmus::data {
namespace {

TEST(ForAll, DoesEachPieceOnce) {
  for (const int64_t count : {0, 1, 7, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    const Status status = ForAll(count, {.name = "t", .threads_at_most = 4}, [&](int64_t i) {
      ++calls[static_cast<size_t>(i)];
      return Status();
    });
    EXPECT_TRUE(status.ok());
    for (const auto& call : calls) EXPECT_EQ(call, 1);
  }
}

TEST(ForAll, StopsAtAnErrorAndReturnsTheLowest) {
  std::atomic<int> calls = 0;
  const Status status = ForAll(100'000, {.name = "t", .threads_at_most = 1}, [&](int64_t i) {
    ++calls;
    return i < 10 ? Status() : DataLossError("piece {}", i);
  });
  EXPECT_EQ(status.message(), "piece 10");
  EXPECT_EQ(calls, 11);
}

}  // namespace
}  // namespace ulmus::data
