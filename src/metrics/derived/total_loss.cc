#include "metrics/derived/table.h"

namespace ulmus::metrics {

std::optional<double> TotalLoss(const StepRecord& record) { return record.loss + record.z_loss; }

}  // namespace ulmus::metrics
