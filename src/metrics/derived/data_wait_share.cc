#include "metrics/derived/table.h"

namespace ulmus::metrics {

std::optional<double> DataWaitShare(const StepRecord& record) {
  if (record.step_s <= 0) return std::nullopt;
  return record.data_wait_s / record.step_s;
}

}  // namespace ulmus::metrics
