// Choosing the next token from logits: greedy, temperature, top-k, top-p. On the host, in double.
//
// The choice is a pure function of (logits, options, sequence, position): no generator state, so a
// prompt gets the same tokens whatever else is in its batch.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"

namespace ulmus::infer {

struct SamplingOptions {
  double temperature = 0;  // logits are divided by it; 0: greedy, the largest logit
  int64_t top_k = 0;       // only the k largest logits; 0: all
  double top_p = 1;        // only the fewest candidates whose probabilities reach p; 1: all
  uint64_t seed = 0;
};

// kInvalidArgument names the option, its value and its range: temperature >= 0 and finite, top_k >=
// 0, 0 < top_p <= 1.
Status ValidateSampling(const SamplingOptions& options);

// The id chosen from logits [V].
//   1. candidates: the top_k largest logits, exactly k of them; of equal ones the lower ids
//      (Hugging Face keeps all that equal the k-th)
//   2. their probabilities: softmax(logits / temperature) over the candidates
//   3. of those, largest first (equal ones: lower ids first), the shortest run whose sum reaches
//      top_p; at least one
//   4. the first of them in id order whose running sum exceeds u * total, u uniform in (0, 1):
//      RandomStream(seed, position, "sample", "").Block(sequence), words 0 and 1 as 53 bits
// temperature 0, or a single candidate, draws nothing. `options` must be valid.
// -inf means "never". Errors, kFailedPrecondition: NaN, +inf, or no finite logit; the id is named.
Result<int64_t> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                            uint64_t sequence, uint64_t position);

// Id of the largest value; the lowest id if several are equal. Same errors as SampleToken.
Result<int64_t> GreedyToken(std::span<const float> logits);

}  // namespace ulmus::infer
