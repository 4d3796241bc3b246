// Finds instances that repeat a short run of tokens over and over, which teach nothing but the run.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace ulmus::data {

enum class NgramVariant {
  kOlmoCore,  // OLMo-core, instance filter
  kMaxText,  // MaxText, olmo_grain NgramFilterTransform: a span may wrap around the instance's ends
};

struct NgramFilter {
  NgramVariant variant = NgramVariant::kOlmoCore;
  int64_t min_period = 1;   // OLMo-core: InstanceFilterConfig, repetition_min_period
  int64_t max_period = 13;  // repetition_max_period
  int64_t max_count = 32;   // repetition_max_count: this often or more is dirty
};

// kInvalidArgument unless 1 <= min_period <= max_period and max_count >= 3 (shorter runs are not
// spans).
Status Validate(const NgramFilter& filter);

// True if some span of period min_period .. min(max_period, T/3) repeats max_count times or more.
// Looks at about T / (max_count * period) tokens per period unless they repeat; linear at worst.
bool HasRepeatedNgram(const NgramFilter& filter, std::span<const int32_t> tokens);

// Tokens [start, end) repeat with `period`; times = (end - start) / period >= 3. MaxText's start
// may be negative and its end beyond T, where the span wraps.
struct NgramSpan {
  int64_t start = 0;
  int64_t end = 0;
  int64_t period = 0;
  int64_t times = 0;
  friend bool operator==(const NgramSpan&, const NgramSpan&) = default;
};

// Every span, by period, then start. `max_count` plays no part.
std::vector<NgramSpan> FindNgramSpans(const NgramFilter& filter, std::span<const int32_t> tokens);

}  // namespace ulmus::data
