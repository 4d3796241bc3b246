#include "data/ngram_filter.h"

#include <algorithm>

namespace ulmus::data {
namespace {

// The references cut an instance into rows of `period` tokens and look for rows that equal the row
// before; a span is a run of such rows with the matching tokens at both its ends. That is the same
// as a run of tokens equal to the token one period before, as long as the run fills a row, which
// three repetitions always do. Only MaxText's wrap, where the last row stands before the first,
// needs rows.
class Rows {
 public:
  Rows(std::span<const int32_t> tokens, int64_t period)
      : tokens_(tokens.data()),
        length_(static_cast<int64_t>(tokens.size())),
        period_(period),
        num_rows_(length_ / period) {}

  bool Matches(int64_t i) const { return tokens_[i] == tokens_[i - period_]; }

  // With the last row standing before the first.
  bool MatchesAround(int64_t i) const {
    return tokens_[i] == tokens_[i < period_ ? i - period_ + length_ : i - period_];
  }
  bool RowMatchesAround(int64_t row) const { return NumLeading(row) == period_; }
  int64_t NumLeading(int64_t row) const {
    int64_t count = 0;
    while (count < period_ && MatchesAround(row * period_ + count)) ++count;
    return count;
  }
  int64_t NumTrailing(int64_t row) const {
    int64_t count = 0;
    while (count < period_ && MatchesAround(row * period_ + period_ - 1 - count)) ++count;
    return count;
  }

  // The span of the maximal run of matching rows first .. last, as MaxText computes it: rows beyond
  // the ends are those at the other end, and a whole matching row before the run counts as none.
  NgramSpan SpanAround(int64_t first, int64_t last) const {
    const int64_t before = NumTrailing((first - 1 + num_rows_) % num_rows_);
    const int64_t after = NumLeading((last + 1) % num_rows_);
    const int64_t start = (first - 1) * period_ - (before == period_ ? 0 : before);
    const int64_t end = (last + 1) * period_ + after;
    return {start, end, period_, (end - start) / period_};
  }

  int64_t length() const { return length_; }
  int64_t period() const { return period_; }
  int64_t num_rows() const { return num_rows_; }

 private:
  const int32_t* tokens_;
  int64_t length_;
  int64_t period_;
  int64_t num_rows_;
};

int64_t MaxPeriod(const NgramFilter& filter, std::span<const int32_t> tokens) {
  return std::min(filter.max_period, static_cast<int64_t>(tokens.size()) / 3);
}

// MaxText pads rows as OLMo-core does unless the period divides the instance; then rows wrap.
bool Wraps(const NgramFilter& filter, const Rows& rows) {
  return filter.variant == NgramVariant::kMaxText && rows.length() % rows.period() == 0;
}

// A run of `needed` matches covers one token of any `needed` consecutive ones: only those are
// probed.
bool HasRun(const Rows& rows, int64_t needed) {
  int64_t searched = rows.period();  // no run that reaches `needed` starts before
  for (int64_t probe = searched + needed - 1; probe < rows.length();
       probe = searched + needed - 1) {
    int64_t start = probe;
    while (start >= searched && rows.Matches(start)) --start;
    if (start < searched) return true;
    searched = start + 1;
  }
  return false;
}

// The runs that touch an end of the instance, where wrapping can make spans longer.
bool HasRunAround(const Rows& rows, int64_t max_count) {
  const int64_t n = rows.num_rows();
  const int64_t first = rows.RowMatchesAround(0) ? 0 : 1;
  int64_t last = first - 1;
  while (last + 1 < n && rows.RowMatchesAround(last + 1)) ++last;
  if (last >= first && rows.SpanAround(first, last).times >= max_count) return true;
  int64_t tail = n;
  while (tail > 0 && rows.RowMatchesAround(tail - 1)) --tail;
  return tail < n && rows.SpanAround(tail, n - 1).times >= max_count;
}

void AddSpan(std::vector<NgramSpan>& spans, const NgramSpan& span) {
  if (span.times > 2) spans.push_back(span);
}

void AddSpansAround(const Rows& rows, std::vector<NgramSpan>& spans) {
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    if (!rows.RowMatchesAround(row)) continue;
    const int64_t first = row;
    while (row + 1 < rows.num_rows() && rows.RowMatchesAround(row + 1)) ++row;
    AddSpan(spans, rows.SpanAround(first, row));
  }
}

void AddSpans(const Rows& rows, std::vector<NgramSpan>& spans) {
  const int64_t period = rows.period();
  for (int64_t i = period; i < rows.length(); ++i) {
    if (!rows.Matches(i)) continue;
    const int64_t start = i - period;
    while (i + 1 < rows.length() && rows.Matches(i + 1)) ++i;
    AddSpan(spans, {start, i + 1, period, (i + 1 - start) / period});
  }
}

}  // namespace

Status Validate(const NgramFilter& filter) {
  if (filter.min_period < 1 || filter.max_period < filter.min_period) {
    return InvalidArgumentError(
        "n-gram filter: periods {} to {}; expected 1 <= min_period <= max_period",
        filter.min_period, filter.max_period);
  }
  if (filter.max_count < 3) {
    return InvalidArgumentError(
        "n-gram filter: max_count {}; expected 3 or more, as two equal n-grams are no repetition",
        filter.max_count);
  }
  return {};
}

bool HasRepeatedNgram(const NgramFilter& filter, std::span<const int32_t> tokens) {
  for (int64_t period = filter.min_period; period <= MaxPeriod(filter, tokens); ++period) {
    const Rows rows(tokens, period);
    if (HasRun(rows, (filter.max_count - 1) * period)) return true;
    if (Wraps(filter, rows) && HasRunAround(rows, filter.max_count)) return true;
  }
  return false;
}

std::vector<NgramSpan> FindNgramSpans(const NgramFilter& filter, std::span<const int32_t> tokens) {
  std::vector<NgramSpan> spans;
  for (int64_t period = filter.min_period; period <= MaxPeriod(filter, tokens); ++period) {
    const Rows rows(tokens, period);
    if (Wraps(filter, rows))
      AddSpansAround(rows, spans);
    else
      AddSpans(rows, spans);
  }
  return spans;
}

}  // namespace ulmus::data
