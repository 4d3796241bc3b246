// Which instances make up the global batch of a step: a pure function of (recipe, step), in
// O(batch).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/permutation_store.h"

namespace ulmus::data {

enum class OrderKind {
  kOlmoCore,  // OLMo-core, NumpyFSLDataLoader: PCG64(seed + epoch), epochs from 1, the tail dropped
  kMaxText,  // MaxText, OlmoIndexSampler on one host: PCG64(SHA-256 of seed and epoch), epochs from
             // 0
  kGrain,    // Grain, IndexSampler(shuffle): index_shuffle, no table; epochs from 0
  kSequential,  // 0, 1, 2, ..., the tail dropped
};
std::string_view Name(OrderKind kind);
Result<OrderKind> ParseOrderKind(std::string_view name);

// What happens where an epoch ends.
enum class EndPolicy {
  kStop,  // one epoch of full batches
  kWrap,  // the next epoch follows, without end
  kPad,   // one epoch, the last batch filled up with kNoInstance
};
std::string_view Name(EndPolicy policy);
Result<EndPolicy> ParseEndPolicy(std::string_view name);

inline constexpr int64_t kNoInstance = -1;  // a row of padding, without loss

// Where a step reads. `epoch` counts from 0 here; orders number their epochs as their references
// do.
struct OrderPosition {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t instance = 0;  // of the epoch's order
  friend bool operator==(const OrderPosition&, const OrderPosition&) = default;
};

struct OrderConfig {
  OrderKind kind = OrderKind::kOlmoCore;
  uint64_t seed = 0;
  int64_t num_instances = 0;
  int64_t batch_size = 0;  // instances of a global batch
  int64_t instances_per_chunk =
      1;  // olmo_core: so many stay together (max_target_sequence_length / T)
  EndPolicy end = EndPolicy::kStop;
  // Step and place from which this batch size holds; earlier steps had another one.
  OrderPosition start = {};
};

// The order that the references' limits leave for so many instances: OLMo-core counts in uint32.
OrderKind DefaultOrderKind(int64_t num_instances);

// Steps count from 0: step k makes the update that leads from k to k + 1. Any thread.
class GlobalOrder {
 public:
  // kInvalidArgument with the numbers: no instance, no full batch, a start that is no batch border,
  // or more instances than the reference can count.
  static Result<std::unique_ptr<GlobalOrder>> Create(const OrderConfig& config,
                                                     const PermutationStoreOptions& store = {});

  // The global batch of `step`, batch_size() ids. kOutOfRange before the start or beyond the end.
  Result<std::vector<int64_t>> InstancesOfStep(int64_t step) const;
  Status InstancesOfStep(int64_t step, std::span<int64_t> ids) const;

  // The step's position; at num_steps() it is where the data ends.
  Result<OrderPosition> PositionOfStep(int64_t step) const;
  // The epoch's number in the reference: from 1 for olmo_core and sequential, from 0 otherwise.
  int64_t EpochNumber(int64_t epoch) const;

  // First step after the last; none if the data never ends.
  std::optional<int64_t> num_steps() const { return num_steps_; }
  int64_t batch_size() const { return config_.batch_size; }
  // Instances that an epoch uses (a last partial batch of kPad counts with its real ones), and
  // leaves out.
  int64_t instances_per_epoch() const;
  int64_t dropped_per_epoch() const { return config_.num_instances - instances_per_epoch(); }
  const OrderConfig& config() const { return config_; }

  // Builds what the first batches need: a permutation file, if the order has one.
  Status Prepare() const;

 private:
  GlobalOrder(const OrderConfig& config, const PermutationStoreOptions& store);
  bool CarriesOver() const;
  int64_t EpochLength() const;
  PermutationId PermutationOfEpoch(int64_t epoch) const;
  Status ReadEpoch(int64_t epoch, int64_t first, std::span<int64_t> ids) const;
  Status ReadChunks(int64_t epoch, int64_t first, std::span<int64_t> ids) const;

  OrderConfig config_;
  std::optional<int64_t> num_steps_;
  std::unique_ptr<PermutationStore> store_;
};

}  // namespace ulmus::data
