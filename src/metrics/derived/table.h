// Metrics computed from a step record alone. They are written next to its fields and never read
// back: changing one does not change what a run recorded.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "metrics/step_record.h"

namespace ulmus::metrics {

struct DerivedMetric {
  std::string_view name;  // key in metrics.jsonl and, after "derived/", tag in TensorBoard
  std::string_view help;
  std::optional<double> (*compute)(const StepRecord&);  // nullopt: has no value for this step
};

std::optional<double> BitsPerToken(const StepRecord& record);
std::optional<double> DataWaitShare(const StepRecord& record);
std::optional<double> Perplexity(const StepRecord& record);
std::optional<double> TotalLoss(const StepRecord& record);

std::span<const DerivedMetric> DerivedMetrics();

}  // namespace ulmus::metrics
