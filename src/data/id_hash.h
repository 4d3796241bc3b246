// A running hash of the ids of all global batches consumed, for metrics and checkpoints.
#pragma once

#include <cstdint>
#include <span>

#include "base/hash.h"

namespace ulmus::data {

// Fed with whole global batches in the order of their steps, on every host alike: a host knows all
// ids of a batch, whatever rows it reads. So the value is the same for any number of hosts, devices
// and microbatches, and equal values mean equal instances in equal order. Resumes from its two
// numbers.
class ConsumedIds {
 public:
  ConsumedIds() = default;
  ConsumedIds(uint64_t value, int64_t num_ids) : hash_(value), num_ids_(num_ids) {}

  void Add(std::span<const int64_t> global_batch) {
    for (const int64_t id : global_batch) hash_.Add(static_cast<uint64_t>(id));
    num_ids_ += static_cast<int64_t>(global_batch.size());
  }

  uint64_t value() const { return hash_.value(); }
  int64_t num_ids() const { return num_ids_; }
  friend bool operator==(const ConsumedIds&, const ConsumedIds&) = default;

 private:
  RollingHash hash_;
  int64_t num_ids_ = 0;
};

}  // namespace ulmus::data
