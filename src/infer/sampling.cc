#include "infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"

namespace ulmus::infer {
namespace {

struct Candidate {
  int64_t id = 0;
  double weight = 0;  // the logit, later exp of it
};

// Larger first, lower ids first among equals: a strict order, so no result depends on the sort.
bool Before(const Candidate& x, const Candidate& y) {
  return x.weight != y.weight ? x.weight > y.weight : x.id < y.id;
}

std::vector<Candidate> FiniteCandidates(std::span<const float> logits) {
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) candidates.push_back({static_cast<int64_t>(id), logits[id]});
  }
  return candidates;
}

void KeepTopK(std::vector<Candidate>& candidates, int64_t k) {
  if (k == 0 || k >= static_cast<int64_t>(candidates.size())) return;
  std::nth_element(candidates.begin(), candidates.begin() + (k - 1), candidates.end(), Before);
  candidates.resize(static_cast<size_t>(k));
}

void LogitsToWeights(std::vector<Candidate>& candidates, double top, double temperature) {
  for (Candidate& c : candidates) c.weight = std::exp((c.weight - top) / temperature);
}

double Total(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& c : candidates) total += c.weight;
  return total;
}

// A heap gives the largest one by one: the run is usually short, the vocabulary is not.
void KeepTopP(std::vector<Candidate>& candidates, double top_p) {
  if (top_p >= 1) return;
  const double enough = top_p * Total(candidates);
  const auto after = [](const Candidate& x, const Candidate& y) { return Before(y, x); };
  std::ranges::make_heap(candidates, after);
  auto end = candidates.end();
  double sum = 0;
  do {
    std::pop_heap(candidates.begin(), end, after);
    sum += (--end)->weight;
  } while (sum < enough && end != candidates.begin());
  candidates.erase(candidates.begin(), end);
}

double Uniform(uint64_t seed, uint64_t sequence, uint64_t position) {
  const PhiloxCounter words = RandomStream(seed, position, "sample", "").Block(sequence);
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return (static_cast<double>(bits) + 0.5) * 0x1p-53;
}

int64_t Draw(std::vector<Candidate>& candidates, double u) {
  std::ranges::sort(candidates, {}, &Candidate::id);
  const double target = u * Total(candidates);
  double sum = 0;
  for (const Candidate& c : candidates) {
    sum += c.weight;
    if (sum > target) return c.id;
  }
  return candidates.back().id;  // u near 1, where target rounds to the total
}

}  // namespace

Status ValidateSampling(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    return InvalidArgumentError("temperature is {}, expected a number >= 0 (0: greedy)",
                                options.temperature);
  if (options.top_k < 0)
    return InvalidArgumentError("top_k is {}, expected a count >= 0 (0: all tokens)",
                                options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    return InvalidArgumentError("top_p is {}, expected 0 < top_p <= 1 (1: all tokens)",
                                options.top_p);
  return {};
}

Result<int64_t> GreedyToken(std::span<const float> logits) {
  int64_t best = -1;
  for (size_t id = 0; id < logits.size(); ++id) {
    const float logit = logits[id];
    if (std::isnan(logit) || (std::isinf(logit) && logit > 0)) {
      return FailedPreconditionError(
          "the logit of token {} is {}, expected a finite number; use another "
          "checkpoint, or compute in f32",
          id, logit);
    }
    if (std::isinf(logit)) continue;
    if (best < 0 || logit > logits[static_cast<size_t>(best)]) best = static_cast<int64_t>(id);
  }
  if (best < 0)
    return FailedPreconditionError("none of the {} logits is finite: no token can be chosen",
                                   logits.size());
  return best;
}

Result<int64_t> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                            uint64_t sequence, uint64_t position) {
  const int64_t best = TRY(GreedyToken(logits));
  if (options.temperature == 0 || options.top_k == 1) return best;
  std::vector<Candidate> candidates = FiniteCandidates(logits);
  KeepTopK(candidates, options.top_k);
  // The order of the sums below must not depend on how nth_element left them.
  std::ranges::sort(candidates, {}, &Candidate::id);
  LogitsToWeights(candidates, logits[static_cast<size_t>(best)], options.temperature);
  KeepTopP(candidates, options.top_p);
  return Draw(candidates, Uniform(options.seed, sequence, position));
}

}  // namespace ulmus::infer
