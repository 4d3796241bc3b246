#include "data/ngram_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "data/testing/testdata.h"

namespace ulmus::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int32_t>;

std::vector<NgramSpan> SpansOf(const nlohmann::json& rows) {
  std::vector<NgramSpan> spans;
  for (const auto& row : rows) spans.push_back({row[0], row[1], row[2], row[3]});
  return spans;
}

// The rule in rows, word for word: pad with -1, compare each row with the one before (the last
// before the first), extend runs of equal rows by the equal elements around them.
std::vector<NgramSpan> NaiveSpans(const NgramFilter& filter, const Tokens& tokens) {
  std::vector<NgramSpan> spans;
  const auto length = static_cast<int64_t>(tokens.size());
  for (int64_t p = filter.min_period; p <= std::min(filter.max_period, length / 3); ++p) {
    Tokens padded = tokens;
    int64_t padding = p - length % p;
    if (filter.variant == NgramVariant::kMaxText) padding %= p;
    padded.resize(padded.size() + static_cast<size_t>(padding), -1);
    const int64_t rows = static_cast<int64_t>(padded.size()) / p;
    const auto equal = [&](int64_t row, int64_t k) {
      row = (row + rows) % rows;
      const int64_t before = (row - 1 + rows) % rows;
      return padded[static_cast<size_t>(row * p + k)] ==
             padded[static_cast<size_t>(before * p + k)];
    };
    const auto leading = [&](int64_t row) {
      int64_t count = 0;
      while (count < p && equal(row, count)) ++count;
      return count;
    };
    const auto trailing = [&](int64_t row) {
      int64_t count = 0;
      while (count < p && equal(row, p - 1 - count)) ++count;
      return count % p;
    };
    for (int64_t row = 0; row < rows; ++row) {
      if (leading(row) < p) continue;
      const int64_t first = row;
      while (row + 1 < rows && leading(row + 1) == p) ++row;
      const int64_t start = (first - 1) * p - trailing(first - 1);
      const int64_t end = (row + 1) * p + leading(row + 1);
      if ((end - start) / p > 2) spans.push_back({start, end, p, (end - start) / p});
    }
  }
  return spans;
}

bool NaiveDirty(const NgramFilter& filter, const Tokens& tokens) {
  return std::ranges::any_of(NaiveSpans(filter, tokens),
                             [&](const NgramSpan& span) { return span.times >= filter.max_count; });
}

Tokens Repeat(const Tokens& gram, int64_t times) {
  Tokens tokens;
  for (int64_t i = 0; i < times; ++i) tokens.insert(tokens.end(), gram.begin(), gram.end());
  return tokens;
}

TEST(NgramFilter, SameSpansAndVerdictsAsOlmoCore) {
  const nlohmann::json golden = ReadTestJson("ngram_filter.json");
  ASSERT_EQ(golden.size(), 11u);
  for (const auto& [name, entry] : golden.items()) {
    const auto tokens = entry["tokens"].get<Tokens>();
    EXPECT_EQ(HasRepeatedNgram({}, tokens), !entry["clean"].get<bool>()) << name;
    EXPECT_EQ(FindNgramSpans({}, tokens), SpansOf(entry["spans_start_end_period_times"])) << name;
  }
}

TEST(NgramFilter, SameSpansAsMaxText) {
  const nlohmann::json golden = ReadTestJson("ngram_maxtext.json");
  ASSERT_EQ(golden.size(), 42u);
  for (const nlohmann::json& entry : golden) {
    const auto tokens = entry["tokens"].get<Tokens>();
    EXPECT_EQ(FindNgramSpans({.variant = NgramVariant::kMaxText}, tokens), SpansOf(entry["spans"]))
        << entry["tokens"];
  }
}

TEST(NgramFilter, MaxTextCountsOneTokenRepeatedTwiceTooOften) {
  const Tokens tokens = Repeat({5}, 30);
  const NgramFilter maxtext = {.variant = NgramVariant::kMaxText, .max_period = 1};
  EXPECT_THAT(FindNgramSpans({.max_period = 1}, tokens), ElementsAre(NgramSpan{0, 30, 1, 30}));
  EXPECT_THAT(FindNgramSpans(maxtext, tokens), ElementsAre(NgramSpan{-1, 31, 1, 32}));
  EXPECT_FALSE(HasRepeatedNgram({}, tokens));
  EXPECT_TRUE(HasRepeatedNgram(maxtext, tokens));
}

// Short rows of few different tokens, so that spans of all kinds, also around the ends, are common.
TEST(NgramFilter, SameAsTheRowRuleOnRandomRows) {
  std::mt19937 random(1);
  int64_t num_dirty = 0;
  for (int i = 0; i < 3000; ++i) {
    const int64_t period = 1 + static_cast<int64_t>(random() % 6);
    Tokens gram(static_cast<size_t>(period));
    for (int32_t& token : gram) token = static_cast<int32_t>(random() % 2);
    Tokens tokens = Repeat(gram, 4 + static_cast<int64_t>(random() % 20));
    tokens.resize(tokens.size() - random() % static_cast<size_t>(period));
    for (uint32_t changes = random() % 4; changes > 0; --changes)
      tokens[random() % tokens.size()] = 3;
    for (const NgramVariant variant : {NgramVariant::kOlmoCore, NgramVariant::kMaxText}) {
      const NgramFilter filter = {.variant = variant,
                                  .max_count = 3 + static_cast<int64_t>(random() % 12)};
      ASSERT_EQ(FindNgramSpans(filter, tokens), NaiveSpans(filter, tokens))
          << ::testing::PrintToString(tokens);
      const bool dirty = NaiveDirty(filter, tokens);
      ASSERT_EQ(HasRepeatedNgram(filter, tokens), dirty)
          << ::testing::PrintToString(tokens) << " max_count " << filter.max_count;
      num_dirty += dirty;
    }
  }
  EXPECT_GT(num_dirty, 1000);
  EXPECT_LT(num_dirty, 5000);
}

TEST(NgramFilter, ShortInstancesAreClean) {
  for (const NgramVariant variant : {NgramVariant::kOlmoCore, NgramVariant::kMaxText}) {
    for (size_t length = 0; length < 4; ++length)
      EXPECT_FALSE(HasRepeatedNgram({.variant = variant}, Tokens(length, 1)));
  }
}

TEST(NgramFilter, RefusesLimitsThatMakeNoSense) {
  EXPECT_TRUE(Validate({}).ok());
  EXPECT_THAT(Validate({.min_period = 0}).message(), HasSubstr("periods 0 to 13"));
  EXPECT_THAT(Validate({.min_period = 5, .max_period = 4}).message(), HasSubstr("periods 5 to 4"));
  EXPECT_THAT(Validate({.max_count = 2}).message(), HasSubstr("max_count 2"));
}

}  // namespace
}  // namespace ulmus::data
