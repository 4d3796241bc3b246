#include "metrics/derived/table.h"

#include <cmath>

namespace ulmus::metrics {

std::optional<double> Perplexity(const StepRecord& record) { return std::exp(record.loss); }

}  // namespace ulmus::metrics
