// One host's rows of a global batch, and how a global batch is cut.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/instance_source.h"
#include "data/ngram_filter.h"
#include "tensor/host_tensor.h"

namespace ulmus::data {

// Rows of the global batch [B, T]: first along microbatches, then hosts, then devices of a host. A
// microbatch is a block of consecutive rows, and a device has a block of each microbatch, so a
// microbatch is sharded over all devices as one array would be.
struct BatchLayout {
  int64_t batch_size = 0;  // B
  int64_t num_microbatches = 1;
  int64_t num_hosts = 1;
  int64_t devices_per_host = 1;  // that hold rows of their own (data-parallel)
};

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// kInvalidArgument with the equation unless microbatches x hosts x devices divides the batch, all
// >= 1.
Status Validate(const BatchLayout& layout);
// Rows of one device in one microbatch; of all devices of a host in one microbatch; of a host in
// all microbatches, in the order in which its Batch holds them. The layout is valid (CHECK).
RowRange DeviceRows(const BatchLayout& layout, int64_t microbatch, int64_t host, int64_t device);
RowRange HostRows(const BatchLayout& layout, int64_t microbatch, int64_t host);
std::vector<int64_t> RowsOfHost(const BatchLayout& layout, int64_t host);

// What the loss of a batch is divided by.
enum class LossDivisor {
  kValidTokens,  // tokens that are targets; MaxText
  kOlmoCore,     // the same, and T for every filtered instance: they count as tokens without loss
};
std::string_view Name(LossDivisor divisor);
Result<LossDivisor> ParseLossDivisor(std::string_view name);

// What becomes of an instance on its way into a batch.
struct BatchOptions {
  bool filter_ngrams = false;
  NgramFilter filter = {};
  LossDivisor divisor = LossDivisor::kOlmoCore;
  bool want_targets = false;    // fill targets; a step program that shifts tokens itself needs none
  bool want_documents = false;  // fill segment_ids and positions
  int32_t pad_token = 0;        // of rows without an instance
};

// The rows of one host, R of the B rows of the global batch. Buffers are 64-byte aligned and used
// again.
//   tokens       i32 [R, T]
//   targets      i32 [R, T], empty unless wanted: the next token of the row, 0 in the last column
//   loss_mask    u8 [R, T]: 1 where the next token counts. OLMo-core masks tokens, then shifts:
//   target t counts
//                if token t+1 may be one; the last column never does; nor any of a filtered
//                instance
//   segment_ids, positions   i32 [R, T], empty unless wanted. A row of padding is all
//   kPaddingSegment
struct Batch {
  int64_t step = 0;
  std::vector<int64_t> global_ids;  // all B ids of the global batch; kNoInstance: a row of padding
  std::vector<int64_t> rows;        // row r of the arrays is row rows[r] of the global batch
  HostTensor tokens, targets, loss_mask, segment_ids, positions;
  // Sums over these rows; those of all hosts add up to the global batch's.
  int64_t num_filtered = 0;
  int64_t num_valid = 0;  // ones in loss_mask
  int64_t divisor = 0;

  int64_t id(int64_t row) const {
    return global_ids[static_cast<size_t>(rows[static_cast<size_t>(row)])];
  }
};

// An empty batch with buffers for these rows.
Batch MakeBatch(std::vector<int64_t> rows, int64_t sequence_length, const BatchOptions& options);

struct RowCounts {
  bool filtered = false;
  int64_t num_valid = 0;
};
// Fills row `row` of the arrays with the instance that global_ids names. Rows may be filled by
// different threads at once. kDataLoss as InstanceSource::Read.
Result<RowCounts> FillRow(const InstanceSource& source, const BatchOptions& options, Batch& batch,
                          int64_t row);
// Adds the counts of all rows up.
void Summarize(std::span<const RowCounts> rows, int64_t sequence_length, LossDivisor divisor,
               Batch& batch);

}  // namespace ulmus::data
