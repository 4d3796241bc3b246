#include "data/instance_source.h"

#include "base/check.h"

namespace ulmus::data {

void FillDocuments(std::span<const int32_t> tokens, int64_t num_real, const DocumentRule& rule,
                   const InstanceRow& row) {
  const auto length = static_cast<int64_t>(tokens.size());
  CHECK(num_real >= 0 && num_real <= length, "{} real tokens of {}", num_real, length);
  int32_t segment = num_real > 0 ? 1 : kPaddingSegment;
  int32_t position = 0;
  for (int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i == num_real) {
      segment = kPaddingSegment;
      position = 0;
    } else if (i > 0 && i < num_real && rule.IsBorder(tokens[at - 1], tokens[at])) {
      ++segment;
      position = 0;
    }
    if (!row.segment_ids.empty()) row.segment_ids[at] = segment;
    if (!row.positions.empty()) row.positions[at] = position;
    ++position;
  }
}

void CheckRow(const InstanceRow& row, int64_t sequence_length) {
  const auto fits = [sequence_length](size_t size) {
    return size == 0 || static_cast<int64_t>(size) == sequence_length;
  };
  CHECK(fits(row.tokens.size()) && fits(row.loss_mask.size()) && fits(row.segment_ids.size()) &&
            fits(row.positions.size()),
        "spans of {}, {}, {} and {} for instances of {} tokens", row.tokens.size(),
        row.loss_mask.size(), row.segment_ids.size(), row.positions.size(), sequence_length);
}

}  // namespace ulmus::data
