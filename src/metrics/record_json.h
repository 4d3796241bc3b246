// A record as one line of JSON and back (docs/formats/metrics.md).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "metrics/step_record.h"

namespace ulmus::metrics {

// The record's line, without a line end. Derived metrics stand after the record's own fields.
std::string ToJson(const Record& record);
// kDataLoss says what is wrong. Keys that are not known are passed over, numbers keep every bit.
Result<Record> ParseRecord(std::string_view line);

}  // namespace ulmus::metrics
