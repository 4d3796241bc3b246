// Do two implementations of a model compute the same? Statistics of their logits position by
// position, a verdict against stated limits, and the first intermediate tensor that differs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace ulmus::infer {

// Where the largest of something was seen: sequence b, position t within it.
struct TokenPlace {
  int64_t sequence = 0, position = 0;
  friend bool operator==(const TokenPlace&, const TokenPlace&) = default;
};

// Of the positions where our logits are finite; without one, KL and differences are NaN.
struct ParityStats {
  int64_t positions = 0;  // all, also those that are not finite
  // KL(reference || ours) = sum_v p_ref(v) * (ln p_ref(v) - ln p_ours(v)), in nats.
  double kl_mean = 0, kl_max = 0;
  TokenPlace kl_max_at;
  double top1_agreement = 1;  // share of positions where both have the same largest logit
  // The first position where they have not, and by how much the reference prefers its own choice to
  // ours: far below max_abs_diff it is a tie that rounding decided.
  std::optional<TokenPlace> first_disagreement;
  double first_disagreement_margin = 0;
  double max_abs_diff = 0;  // of logits
  TokenPlace max_abs_diff_at;
  // Positions where our logits have NaN or infinities: never the same top-1, in no other figure.
  int64_t nonfinite = 0;
  std::optional<TokenPlace> first_nonfinite;

  // Where to look for the cause of a difference.
  TokenPlace WorstPlace() const { return first_nonfinite.value_or(kl_max_at); }
};

// Collects ParityStats; keeps nothing of the logits. Sums in double.
class ParityAccumulator {
 public:
  // Logits [V] of one position. kDataLoss if the reference is not finite, kInvalidArgument if the
  // lengths differ or are 0.
  Status Add(TokenPlace place, std::span<const float> reference, std::span<const float> ours);
  ParityStats Stats() const;

 private:
  ParityStats stats_;
  int64_t compared_ = 0, agreeing_ = 0;
  double kl_sum_ = 0;
};

// KL(p || q) in nats of the distributions that two rows of logits stand for. Never negative.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

// What must hold. A limit that is absent is not judged.
struct ParityLimits {
  std::optional<double> kl_mean = {}, kl_max = {}, max_abs_diff = {};  // at most
  std::optional<double> top1_agreement = {};                           // at least
};
// Of the dtype the model computes in. f32: KL below 1e-6 at every position and the same top-1
// everywhere; bf16: top-1 at 99.5 % of the positions, mean KL at most 1.5e-3 (what a public
// conversion of OLMo 3 7B reached at 8192 tokens, with 98.75 % top-1).
ParityLimits DefaultParityLimits(DType dtype);

// Every limit that does not hold, as a sentence with the figure found and the figure allowed; empty
// if all hold. Positions that are not finite, or no positions at all, never hold.
std::vector<std::string> BrokenLimits(const ParityStats& stats, const ParityLimits& limits);

// --- Intermediate tensors

// One comparison of an intermediate tensor of the forward pass.
struct TensorParity {
  std::string name;
  double max_abs_diff = 0;                // infinite if something is not finite
  double relative_rms = 0;                // rms(ours - reference) / rms(reference)
  std::optional<TokenPlace> first_place;  // the first position whose own relative_rms is too large
};

// Collects a TensorParity over sequences. A value that is not finite makes relative_rms infinite.
class TensorAccumulator {
 public:
  TensorAccumulator(std::string name, double relative_rms_limit)
      : limit_(relative_rms_limit), parity_{.name = std::move(name), .first_place = {}} {}
  // `reference` and `ours`: one sequence [T,W], T = length.
  void Add(int64_t sequence, int64_t length, std::span<const float> reference,
           std::span<const float> ours);
  TensorParity Result() const;

 private:
  double limit_;
  TensorParity parity_;
  double difference_squares_ = 0, reference_squares_ = 0;
};

// Rounding grows layer by layer; a real fault shows at once as a difference of order one. The limit
// lies between: 1e-4 for f32, 5e-2 for bf16.
double DefaultIntermediateLimit(DType dtype);

// The first, in the order given (that of the forward pass), above the limit; null if none is.
const TensorParity* FirstDivergent(std::span<const TensorParity> tensors,
                                   double relative_rms_limit);

}  // namespace ulmus::infer
