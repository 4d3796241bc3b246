#include "metrics/derived/table.h"

#include <array>

namespace ulmus::metrics {

std::span<const DerivedMetric> DerivedMetrics() {
  static constexpr std::array kTable = {
      DerivedMetric{"bits_per_token", "loss / ln 2", BitsPerToken},
      DerivedMetric{"data_wait_share", "part of the step spent waiting for data", DataWaitShare},
      DerivedMetric{"perplexity", "e^loss", Perplexity},
      DerivedMetric{"total_loss", "loss + z_loss", TotalLoss},
  };
  return kTable;
}

}  // namespace ulmus::metrics
