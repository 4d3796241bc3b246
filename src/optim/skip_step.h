// When an update is left out because loss or gradient norm jumped: histories on the host, limits
// into the step program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace ulmus::optim {

struct SkipOptions {
  int64_t interval = 128;  // OLMo-core rolling_interval_length, MaxText skip_step_interval
  double sigma = 6;        // OLMo-core sigma_factor, MaxText skip_step_scaling_factor
  // OLMo-core keeps a NaN in its history, after which every update is skipped until it has left.
  // Off: steps with a non-finite loss or norm are skipped and forgotten.
  bool keep_non_finite = false;
};

// kInvalidArgument with the numbers.
Status ValidateSkipOptions(const SkipOptions& options);

// An update is applied iff both values are finite and loss <= loss_limit and grad_norm <=
// grad_norm_limit (NaN limits: never).
struct SkipLimits {
  double loss, grad_norm;
  bool Applies(double loss_value, double grad_norm_value) const;
};

// The last `interval` values of a run, applied or not: a spike becomes part of what is usual.
// Which loss and norm is the caller's choice: OLMo-core takes the cross entropy and the norm before
// clipping, MaxText the total loss with z-loss and the norm after clipping.
// Sources: OLMo-core optim/skip_step_optimizer.py, MaxText skip_step_on_spikes.
class SkipHistory {
 public:
  explicit SkipHistory(SkipOptions options = {}) : options_(options) {}

  // mean + sigma * std (unbiased) of each history; infinite while there are fewer than
  // max(2, interval/2) values, the coming one included.
  SkipLimits Limits() const;
  void Append(double loss, double grad_norm);

  // Oldest first, equally long, at most `interval`: what a checkpoint holds.
  const std::vector<double>& losses() const { return losses_; }
  const std::vector<double>& grad_norms() const { return grad_norms_; }
  // kDataLoss if they are not what the above says.
  Status Restore(std::vector<double> losses, std::vector<double> grad_norms);

 private:
  SkipOptions options_;
  std::vector<double> losses_, grad_norms_;
};

}  // namespace ulmus::optim
