// A mean kept as sum and count until it is printed. Means of parts must never be averaged: parts
// with few targets would weigh too much.
#pragma once

#include <cstdint>
#include <limits>

namespace ulmus::metrics {

// Losses of a batch, a shard or a whole evaluation: (2, 1) + (90, 9) is 92 / 10 = 9.2, not
// (2 + 10) / 2 = 6, however the items are grouped.
struct SumCount {
  double sum = 0;
  int64_t count = 0;

  SumCount& operator+=(const SumCount& other) {
    sum += other.sum;
    count += other.count;
    return *this;
  }
  friend SumCount operator+(SumCount a, const SumCount& b) { return a += b; }
  friend bool operator==(const SumCount&, const SumCount&) = default;

  // NaN if nothing was counted: there is no mean of nothing.
  double mean() const {
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
  }
};

}  // namespace ulmus::metrics
