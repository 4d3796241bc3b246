#include "data/batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "data/order.h"  // kNoInstance

namespace ulmus::data {
namespace {

constexpr std::pair<LossDivisor, std::string_view> kDivisorNames[] = {
    {LossDivisor::kValidTokens, "valid_tokens"},
    {LossDivisor::kOlmoCore, "olmo_core"},
};

int64_t MicrobatchRows(const BatchLayout& layout) {
  return layout.batch_size / layout.num_microbatches;
}

template <class T>
std::span<T> Row(HostTensor& tensor, int64_t row) {
  if (tensor.shape().rank() != 2) return {};  // not wanted
  const auto width = static_cast<size_t>(tensor.shape().dims()[1]);
  return tensor.values<T>().subspan(static_cast<size_t>(row) * width, width);
}

void FillPadding(const InstanceRow& row, int32_t pad_token) {
  std::ranges::fill(row.tokens, pad_token);
  std::ranges::fill(row.loss_mask, uint8_t{0});
  std::ranges::fill(row.segment_ids, kPaddingSegment);
  std::iota(row.positions.begin(), row.positions.end(), 0);
}

// Token masks become target masks: one to the left. Returns the number of targets.
int64_t ShiftMask(std::span<uint8_t> mask) {
  std::shift_left(mask.begin(), mask.end(), 1);
  mask.back() = 0;
  int64_t count = 0;
  for (const uint8_t one : mask) count += one;
  return count;
}

}  // namespace

Status Validate(const BatchLayout& layout) {
  const auto& [batch, microbatches, hosts, devices] = layout;
  if (batch >= 1 && microbatches >= 1 && hosts >= 1 && devices >= 1 && batch % microbatches == 0 &&
      batch / microbatches % hosts == 0 && batch / microbatches / hosts % devices == 0)
    return {};
  return InvalidArgumentError(
      "a global batch of {} instances cannot be cut into {} microbatches x {} hosts x {} devices: "
      "{} / "
      "({} * {} * {}) is no whole number >= 1",
      batch, microbatches, hosts, devices, batch, microbatches, hosts, devices);
}

RowRange HostRows(const BatchLayout& layout, int64_t microbatch, int64_t host) {
  CHECK(Validate(layout).ok(), "{}", Validate(layout).message());
  CHECK(microbatch >= 0 && microbatch < layout.num_microbatches && host >= 0 &&
            host < layout.num_hosts,
        "microbatch {} of {}, host {} of {}", microbatch, layout.num_microbatches, host,
        layout.num_hosts);
  const int64_t count = MicrobatchRows(layout) / layout.num_hosts;
  return {microbatch * MicrobatchRows(layout) + host * count, count};
}

RowRange DeviceRows(const BatchLayout& layout, int64_t microbatch, int64_t host, int64_t device) {
  CHECK(device >= 0 && device < layout.devices_per_host, "device {} of {}", device,
        layout.devices_per_host);
  const RowRange rows = HostRows(layout, microbatch, host);
  const int64_t count = rows.count / layout.devices_per_host;
  return {rows.first + device * count, count};
}

std::vector<int64_t> RowsOfHost(const BatchLayout& layout, int64_t host) {
  std::vector<int64_t> rows;
  for (int64_t microbatch = 0; microbatch < layout.num_microbatches; ++microbatch) {
    const RowRange range = HostRows(layout, microbatch, host);
    for (int64_t row = range.first; row < range.first + range.count; ++row) rows.push_back(row);
  }
  return rows;
}

std::string_view Name(LossDivisor divisor) {
  for (const auto& [value, name] : kDivisorNames)
    if (value == divisor) return name;
  CHECK(false, "divisor {} without a name", static_cast<int>(divisor));
  return "";
}

Result<LossDivisor> ParseLossDivisor(std::string_view name) {
  for (const auto& [value, candidate] : kDivisorNames)
    if (candidate == name) return value;
  return InvalidArgumentError("no loss divisor `{}`; there are valid_tokens, olmo_core", name);
}

Batch MakeBatch(std::vector<int64_t> rows, int64_t sequence_length, const BatchOptions& options) {
  const Shape shape{static_cast<int64_t>(rows.size()), sequence_length};
  Batch batch;
  batch.rows = std::move(rows);
  batch.tokens = HostTensor(TensorType{DType::kI32, shape});
  if (options.want_targets) batch.targets = HostTensor(TensorType{DType::kI32, shape});
  batch.loss_mask = HostTensor(TensorType{DType::kU8, shape});
  if (options.want_documents) {
    batch.segment_ids = HostTensor(TensorType{DType::kI32, shape});
    batch.positions = HostTensor(TensorType{DType::kI32, shape});
  }
  return batch;
}

Result<RowCounts> FillRow(const InstanceSource& source, const BatchOptions& options, Batch& batch,
                          int64_t row) {
  const InstanceRow fill = {.tokens = Row<int32_t>(batch.tokens, row),
                            .loss_mask = Row<uint8_t>(batch.loss_mask, row),
                            .segment_ids = Row<int32_t>(batch.segment_ids, row),
                            .positions = Row<int32_t>(batch.positions, row)};
  const int64_t id = batch.id(row);
  if (id == kNoInstance)
    FillPadding(fill, options.pad_token);
  else
    TRY(source.Read(id, fill));

  if (const std::span<int32_t> targets = Row<int32_t>(batch.targets, row); !targets.empty()) {
    std::copy(fill.tokens.begin() + 1, fill.tokens.end(), targets.begin());
    targets.back() = 0;
  }

  RowCounts counts;
  counts.filtered =
      id != kNoInstance && options.filter_ngrams && HasRepeatedNgram(options.filter, fill.tokens);
  if (counts.filtered) std::ranges::fill(fill.loss_mask, uint8_t{0});
  counts.num_valid = ShiftMask(fill.loss_mask);
  return counts;
}

void Summarize(std::span<const RowCounts> rows, int64_t sequence_length, LossDivisor divisor,
               Batch& batch) {
  batch.num_filtered = 0;
  batch.num_valid = 0;
  for (const RowCounts& row : rows) {
    batch.num_filtered += row.filtered ? 1 : 0;
    batch.num_valid += row.num_valid;
  }
  batch.divisor = batch.num_valid;
  // Source: OLMo-core, TransformerTrainModule.train_batch: masked instances are added back whole.
  if (divisor == LossDivisor::kOlmoCore) batch.divisor += batch.num_filtered * sequence_length;
}

}  // namespace ulmus::data
