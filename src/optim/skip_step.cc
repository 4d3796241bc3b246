#include "optim/skip_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ulmus::optim {
namespace {

double Limit(const std::vector<double>& values, double sigma) {
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return mean + sigma * std::sqrt(squares / std::max(1.0, count - 1));
}

}  // namespace

Status ValidateSkipOptions(const SkipOptions& options) {
  if (options.interval < 2)
    return InvalidArgumentError("skip-step interval = {}, expected at least 2", options.interval);
  if (!(options.sigma > 0))
    return InvalidArgumentError("skip-step sigma = {}, expected above 0", options.sigma);
  return {};
}

bool SkipLimits::Applies(double loss_value, double grad_norm_value) const {
  return std::isfinite(loss_value) && std::isfinite(grad_norm_value) && loss_value <= loss &&
         grad_norm_value <= grad_norm;
}

SkipLimits SkipHistory::Limits() const {
  const int64_t with_next = static_cast<int64_t>(losses_.size()) + 1;
  if (with_next < std::max<int64_t>(2, options_.interval / 2)) {
    const double none = std::numeric_limits<double>::infinity();
    return {none, none};
  }
  return {Limit(losses_, options_.sigma), Limit(grad_norms_, options_.sigma)};
}

void SkipHistory::Append(double loss, double grad_norm) {
  if (!options_.keep_non_finite && !(std::isfinite(loss) && std::isfinite(grad_norm))) return;
  losses_.push_back(loss);
  grad_norms_.push_back(grad_norm);
  if (static_cast<int64_t>(losses_.size()) > options_.interval) {
    losses_.erase(losses_.begin());
    grad_norms_.erase(grad_norms_.begin());
  }
}

Status SkipHistory::Restore(std::vector<double> losses, std::vector<double> grad_norms) {
  const auto size = static_cast<int64_t>(losses.size());
  if (losses.size() != grad_norms.size() || size > options_.interval) {
    return DataLossError(
        "skip-step history: {} losses and {} gradient norms, expected equally many, at most {}",
        losses.size(), grad_norms.size(), options_.interval);
  }
  const auto finite = [](double value) { return std::isfinite(value); };
  if (!options_.keep_non_finite &&
      !(std::ranges::all_of(losses, finite) && std::ranges::all_of(grad_norms, finite)))
    return DataLossError("skip-step history: holds values that are not finite");
  losses_ = std::move(losses);
  grad_norms_ = std::move(grad_norms);
  return {};
}

}  // namespace ulmus::optim
