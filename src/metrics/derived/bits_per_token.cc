#include "metrics/derived/table.h"

#include <numbers>

namespace ulmus::metrics {

std::optional<double> BitsPerToken(const StepRecord& record) {
  return record.loss / std::numbers::ln2;
}

}  // namespace ulmus::metrics
