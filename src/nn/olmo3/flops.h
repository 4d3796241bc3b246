// Floating-point operations per token of training (forward and backward), by the three formulas in
// use. An MFU is comparable only with one by the same formula.
#pragma once

#include <string_view>
#include <vector>

#include "nn/olmo3/config.h"

namespace ulmus::nn::olmo3 {

enum class FlopsFormula {
  // OLMo-core num_flops_per_token: attention over min(window, S) or S keys without causal halving;
  // q/k and final norms counted; V padded.
  kOlmoCore,
  // MaxText calculate_tflops_training_per_device: attention halved for causality, windows ignored.
  kMaxText,
  // Query-key pairs that exist: causal and inside the window; otherwise as MaxText.
  kExact,
};
// "olmo_core", "maxtext", "exact"
std::string_view Name(FlopsFormula formula);
inline constexpr FlopsFormula kAllFlopsFormulas[] = {FlopsFormula::kOlmoCore,
                                                     FlopsFormula::kMaxText, FlopsFormula::kExact};
// kInvalidArgument lists the names.
Result<FlopsFormula> ParseFlopsFormula(std::string_view name);

// S: sequence length, tokens. Recomputation is not counted.
double ComputeFlopsPerToken(const Config& config, int64_t S, FlopsFormula formula);

}  // namespace ulmus::nn::olmo3
