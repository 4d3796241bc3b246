// Continues a batch of prompts, one token at a time.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "infer/decoder.h"
#include "infer/sampling.h"

namespace ulmus::infer {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 64;
  std::vector<int64_t> eos_token_ids;  // end a sequence, and are not part of it
  // Number of the first prompt among all that are continued: it seeds the draws, so that splitting
  // prompts into batches changes nothing.
  int64_t first_sequence = 0;
};

enum class Finish { kEos, kStopped, kLength };
std::string_view Name(Finish finish);  // "eos", "stop", "length"

struct Continuation {
  std::vector<int32_t> ids;
  Finish finish = Finish::kLength;
};

// Tokens and wall time, summed over calls.
struct GenerateTimes {
  int64_t prefill_tokens = 0, decode_tokens = 0;
  double prefill_s = 0, decode_s = 0;
};

// Sees each new token of prompt `row`; false ends that sequence.
using TokenFn = std::function<Result<bool>(int64_t row, int32_t id)>;

// Forgets what the decoder holds. At most as many prompts as its batch has rows; none empty. The
// draw for the token at place t of its sequence is SampleToken(..., sequence, t): a text continued
// in two parts is the one continued at once.
Result<std::vector<Continuation>> Generate(Decoder& decoder,
                                           std::span<const std::vector<int32_t>> prompts,
                                           const GenerateOptions& options, const TokenFn& on_token,
                                           GenerateTimes& times);

}  // namespace ulmus::infer
