// Where a run stands in its data: what a checkpoint keeps, and what may change when it is taken up
// again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/id_hash.h"
#include "data/instance_source.h"
#include "data/order.h"
#include "data/token_file_identity.h"

namespace ulmus::data {

// The first nine fields are OLMo-core's data loader state_dict, under its names.
struct LoaderState {
  std::string dataset_fingerprint_version;
  std::string dataset_fingerprint;
  int64_t batches_processed = 0;  // of this epoch
  int64_t tokens_processed = 0;   // of this epoch
  uint64_t seed = 0;
  int64_t epoch = 0;  // as the order's reference counts
  std::string dataset_type;
  int64_t sequence_length = 0;
  int64_t max_target_sequence_length = 0;
  // Ours.
  std::string order;
  int64_t step = 0;        // the next one
  int64_t batch_size = 0;  // instances
  int64_t num_instances = 0;
  int64_t total_tokens = 0;  // of all epochs
  ConsumedIds consumed = {};
  std::vector<FileIdentity> files = {};  // what was read; empty: not known
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

// The state before `step`. `total_tokens` and `consumed` are the caller's running sums.
Result<LoaderState> StateBefore(int64_t step, const GlobalOrder& order,
                                const InstanceSource& source, int64_t total_tokens,
                                const ConsumedIds& consumed);

std::string PrintLoaderState(const LoaderState& state);  // JSON, one object
// kDataLoss if the text is no loader state or lacks a field.
Result<LoaderState> ParseLoaderState(std::string_view json);

// The order with which to go on: `config` as the recipe has it, with the state's seed, and from the
// state's place on if the batch size changed. kInvalidArgument with the numbers unless
//   - the data is the same (fingerprint), or the state's fingerprint is `accepted_fingerprint`
//   - order, dataset type and max_target_sequence_length are the same
//   - the batch, in tokens, is the same, a divisor of the old one, or a multiple that the tokens
//   processed
//     divide by
Result<OrderConfig> Resume(const LoaderState& state, const InstanceSource& source,
                           const OrderConfig& config, std::string_view accepted_fingerprint = "");

}  // namespace ulmus::data
