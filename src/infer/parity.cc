#include "infer/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace ulmus::infer {
namespace {

bool AllFinite(std::span<const float> row) {
  return std::ranges::all_of(row, [](float x) { return std::isfinite(x); });
}

double LogSumExp(std::span<const float> row) {
  const double top = *std::ranges::max_element(row);
  double sum = 0;
  for (float x : row) sum += std::exp(x - top);
  return top + std::log(sum);
}

size_t ArgMax(std::span<const float> row) {
  return static_cast<size_t>(std::ranges::max_element(row) - row.begin());
}

// A difference that is no number is an infinite one.
double MaxAbsDiff(std::span<const float> x, std::span<const float> y) {
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

std::string At(const TokenPlace& place) {
  return fmt::format("sequence {}, position {}", place.sequence, place.position);
}

// Root of the ratio of two sums of squares. Not finite counts as infinitely far; a reference of
// zeros only agrees with zeros.
double RelativeRms(double difference_squares, double reference_squares) {
  if (difference_squares == 0) return 0;
  if (!std::isfinite(difference_squares) || reference_squares == 0)
    return std::numeric_limits<double>::infinity();
  return std::sqrt(difference_squares / reference_squares);
}

}  // namespace

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  CHECK(p_logits.size() == q_logits.size() && !p_logits.empty(), "{} and {} logits",
        p_logits.size(), q_logits.size());
  const double p_lse = LogSumExp(p_logits), q_lse = LogSumExp(q_logits);
  double kl = 0;
  for (size_t v = 0; v < p_logits.size(); ++v) {
    const double log_p = p_logits[v] - p_lse, log_q = q_logits[v] - q_lse;
    // p ln(p/q) - p + q: the last two sum to 0 over v, and make every term >= 0, so that rounding
    // does not cancel between terms.
    const double d = log_q - log_p;
    kl += std::exp(log_p) * (std::expm1(d) - d);
  }
  return std::max(kl, 0.0);
}

Status ParityAccumulator::Add(TokenPlace place, std::span<const float> reference,
                              std::span<const float> ours) {
  if (reference.size() != ours.size() || reference.empty()) {
    return InvalidArgumentError(
        "{}: {} reference logits and {} of ours; both must have the same vocabulary", At(place),
        reference.size(), ours.size());
  }
  if (!AllFinite(reference))
    return DataLossError("{}: the reference logits are not finite: nothing to compare with",
                         At(place));
  ++stats_.positions;
  if (!AllFinite(ours)) {
    if (++stats_.nonfinite == 1) stats_.first_nonfinite = place;
    return {};
  }
  ++compared_;
  const double kl = KlDivergence(reference, ours);
  kl_sum_ += kl;
  if (kl > stats_.kl_max) stats_.kl_max = kl, stats_.kl_max_at = place;
  const double difference = MaxAbsDiff(reference, ours);
  if (difference > stats_.max_abs_diff)
    stats_.max_abs_diff = difference, stats_.max_abs_diff_at = place;
  const size_t best = ArgMax(reference), our_best = ArgMax(ours);
  if (best == our_best) {
    ++agreeing_;
  } else if (!stats_.first_disagreement) {
    stats_.first_disagreement = place;
    stats_.first_disagreement_margin =
        static_cast<double>(reference[best]) - static_cast<double>(reference[our_best]);
  }
  return {};
}

ParityStats ParityAccumulator::Stats() const {
  ParityStats stats = stats_;
  if (compared_ > 0) {
    stats.kl_mean = kl_sum_ / static_cast<double>(compared_);
  } else {
    stats.kl_mean = stats.kl_max = stats.max_abs_diff = std::numeric_limits<double>::quiet_NaN();
  }
  if (stats.positions > 0)
    stats.top1_agreement = static_cast<double>(agreeing_) / static_cast<double>(stats.positions);
  return stats;
}

ParityLimits DefaultParityLimits(DType dtype) {
  if (dtype == DType::kF32) return {.kl_max = 1e-6, .top1_agreement = 1.0};
  return {.kl_mean = 1.5e-3, .top1_agreement = 0.995};
}

std::vector<std::string> BrokenLimits(const ParityStats& stats, const ParityLimits& limits) {
  std::vector<std::string> broken;
  if (stats.positions == 0) broken.push_back("no position was compared");
  if (stats.nonfinite > 0)
    broken.push_back(fmt::format("our logits are not finite at {} of {} positions, first at {}",
                                 stats.nonfinite, stats.positions,
                                 At(stats.first_nonfinite.value_or(TokenPlace{}))));
  // All the rest is about finite positions.
  if (stats.positions > 0 && stats.nonfinite == stats.positions) return broken;
  // Written so that a NaN never holds.
  if (limits.kl_mean && !(stats.kl_mean <= *limits.kl_mean))
    broken.push_back(fmt::format("mean KL is {:.3g}, at most {:.3g} is allowed", stats.kl_mean,
                                 *limits.kl_mean));
  if (limits.kl_max && !(stats.kl_max <= *limits.kl_max))
    broken.push_back(fmt::format("KL is {:.3g} at {}, at most {:.3g} is allowed", stats.kl_max,
                                 At(stats.kl_max_at), *limits.kl_max));
  if (limits.top1_agreement && !(stats.top1_agreement >= *limits.top1_agreement)) {
    std::string where;
    if (stats.first_disagreement)
      where = fmt::format("; first at {}, where the reference prefers its choice by {:.3g}",
                          At(*stats.first_disagreement), stats.first_disagreement_margin);
    broken.push_back(fmt::format("the same top-1 at {:.6g} % of the positions, expected {:.6g} %{}",
                                 100 * stats.top1_agreement, 100 * *limits.top1_agreement, where));
  }
  if (limits.max_abs_diff && !(stats.max_abs_diff <= *limits.max_abs_diff))
    broken.push_back(fmt::format("a logit differs by {:.3g} at {}, at most {:.3g} is allowed",
                                 stats.max_abs_diff, At(stats.max_abs_diff_at),
                                 *limits.max_abs_diff));
  return broken;
}

void TensorAccumulator::Add(int64_t sequence, int64_t length, std::span<const float> reference,
                            std::span<const float> ours) {
  const auto rows = static_cast<size_t>(length);
  CHECK(rows > 0 && reference.size() == ours.size() && reference.size() % rows == 0,
        "{}: {} and {} elements in {} rows", parity_.name, reference.size(), ours.size(), rows);
  parity_.max_abs_diff = std::max(parity_.max_abs_diff, MaxAbsDiff(reference, ours));
  const size_t width = reference.size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    double difference = 0, scale = 0;
    for (size_t i = row * width; i < (row + 1) * width; ++i) {
      const double r = reference[i], d = static_cast<double>(ours[i]) - r;
      difference += d * d;
      scale += r * r;
    }
    difference_squares_ += difference;
    reference_squares_ += scale;
    if (!parity_.first_place && RelativeRms(difference, scale) > limit_)
      parity_.first_place = TokenPlace{sequence, static_cast<int64_t>(row)};
  }
}

TensorParity TensorAccumulator::Result() const {
  TensorParity result = parity_;
  result.relative_rms = RelativeRms(difference_squares_, reference_squares_);
  return result;
}

double DefaultIntermediateLimit(DType dtype) { return dtype == DType::kF32 ? 1e-4 : 5e-2; }

const TensorParity* FirstDivergent(std::span<const TensorParity> tensors,
                                   double relative_rms_limit) {
  for (const TensorParity& tensor : tensors) {
    if (!(tensor.relative_rms <= relative_rms_limit)) return &tensor;
  }
  return nullptr;
}

}  // namespace ulmus::infer
